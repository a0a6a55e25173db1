"""Weights of GPT-2 from Hugging Face: the same numbers as there, and runs that begin with them."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import huggingface_hub
import pytest
import torch
import yaml
from huggingface_hub.errors import RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

from recollect import cli
from recollect.agent.agent import BranchConfig
from recollect.common.errors import UsageError
from recollect.config.assembly import assemble
from recollect.memory.gpt2 import Gpt2Config
from recollect.run import api, checkpoint
from recollect.run.display import SilentDisplay

from ..helpers import StopAt, assert_same_end, run_quietly, small_config

WIDTH, BLOCKS, HEADS, STEPS = 12, 3, 4, 24
IN, ACTION = 3, 2
all_tokens = pytest.mark.parametrize("tokens", ["merged", "interleaved"])
every_form = pytest.mark.parametrize("attention", ["banded", "window"])


def theirs(kind=GPT2Model):
    """A small network of theirs in float64 with weights far from 0, which adds no place to a token."""
    sizes = {"n_embd": WIDTH, "n_layer": BLOCKS, "n_head": HEADS, "vocab_size": 5, "n_positions": 64}
    torch.manual_seed(0)
    model = kind(GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn_like(p)
        model.base_model.wpe.weight.zero_()
    return model


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored") / "gpt2"
    theirs().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(stored, tmp_path):
    """A copy to change or delete."""
    return shutil.copytree(stored, tmp_path / "gpt2")


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def built(folder, dtype=torch.float64, **options):
    """A memory that has begun from a folder."""
    config = Gpt2Config(pretrained=str(folder), positions=16, **options).resolved()
    action = ACTION if config.action_apart else 0
    memory = config.build(IN + action, action).to(dtype)
    memory.begin()
    return memory


def blocks_of(memory):
    return memory.trunk.state_dict()


# The same numbers -----------------------------------------------------------------------------


def both(memory, model, rows):
    """What ours says of an episode, and theirs of the same tokens, with the gradients of what is read."""
    x = torch.randn(rows, 2, memory.tokens.seen.in_features + memory.tokens.action_dim, dtype=torch.float64)
    first = torch.zeros(rows, 2, dtype=torch.bool)
    x.requires_grad_()
    ours = memory(x, memory.initial_state(2), first)[0]
    step = torch.arange(rows)[:, None].expand(rows, 2)
    tokens = memory.tokens(x, step).transpose(0, 1).flatten(1, 2)
    said = model(inputs_embeds=tokens).last_hidden_state
    wanted = said[:, memory.tokens.count - 1 :: memory.tokens.count].transpose(0, 1)
    weight = torch.randn(wanted.shape, dtype=torch.float64)
    gradients = [torch.autograd.grad((y * weight).sum(), x, retain_graph=True)[0] for y in (ours, wanted)]
    return (ours, gradients[0]), (wanted, gradients[1])


@all_tokens
@every_form
@pytest.mark.parametrize("rows", [1, 7, STEPS])
def test_it_is_their_network_where_no_episode_is_longer_than_the_context(stored, tokens, attention, rows):
    memory = built(stored, tokens=tokens, attention=attention, context=STEPS)
    for found, wanted in zip(*both(memory, theirs(), rows), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


@all_tokens
@every_form
def test_it_is_another_where_an_episode_is_longer(stored, tokens, attention):
    """The control of the test above: theirs looks back without end."""
    memory = built(stored, tokens=tokens, attention=attention, context=STEPS // 2)
    (ours, _), (wanted, _) = both(memory, theirs(), STEPS)
    away = (ours - wanted).abs().amax((1, 2))
    assert (away[: STEPS // 2] < 1e-10).all() and (away[STEPS // 2 :] > 1e-4).all()


def test_a_model_around_it_and_one_in_parts_are_read_alike(stored, tmp_path):
    wanted = blocks_of(built(stored))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    around = theirs(GPT2LMHeadModel)
    around.transformer.load_state_dict(theirs().state_dict())
    around.save_pretrained(whole)
    around.save_pretrained(parts, max_shard_size="20KB")
    assert any(name.startswith("transformer.") for name in load_file(whole / "model.safetensors"))
    assert len(list(parts.glob("*.safetensors"))) > 1 and not (parts / "model.safetensors").exists()
    for folder in (whole, parts):
        found = blocks_of(built(folder))
        assert all(torch.equal(found[name], x) for name, x in wanted.items())


def test_what_is_not_of_a_block_is_passed_over(folder, stored):
    """The first files of GPT-2 hold masks, and embeddings are not ours."""
    path = folder / "model.safetensors"
    tensors = {name: x for name, x in load_file(path).items() if not name.startswith(("wte", "wpe"))}
    save_file({**tensors, "h.0.attn.bias": torch.ones(1, 1, 64, 64)}, path)
    found, wanted = blocks_of(built(folder)), blocks_of(built(stored))
    assert all(torch.equal(found[name], x) for name, x in wanted.items())


def test_numbers_are_taken_in_the_precision_of_the_memory(stored, tmp_path):
    half = tmp_path / "half"
    theirs().half().save_pretrained(half)
    found, wanted = blocks_of(built(half, torch.float32)), blocks_of(built(stored))
    for name, x in wanted.items():
        assert found[name].dtype == torch.float32
        torch.testing.assert_close(found[name].double(), x, rtol=1e-3, atol=1e-3)


# What is read of a folder ---------------------------------------------------------------------


def test_sizes_are_those_of_the_folder_whatever_was_said(stored):
    wanted = {"width": WIDTH, "layers": BLOCKS, "heads": HEADS}
    for said in ({}, {"width": 99, "layers": 1}, {"heads": 7}):
        config = Gpt2Config(pretrained=str(stored), dropout=0.1, **said).resolved()
        assert config == Gpt2Config(pretrained=str(stored), dropout=0.1, **wanted)
    plain = Gpt2Config()
    assert plain.resolved() is plain


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("activation_function", "relu", "activation_function is 'relu', it must be 'gelu_new'"),
        ("model_type", "gpt_neo", "model_type is 'gpt_neo', it must be 'gpt2'"),
        ("layer_norm_epsilon", 1e-6, "layer_norm_epsilon is 1e-06, it must be 1e-05"),
        ("scale_attn_weights", False, "scale_attn_weights is False, it must be True"),
        ("n_head", None, "n_head is None, an integer is needed"),
    ],
)
def test_another_network_is_refused(folder, name, value, complaint):
    edit(folder / "config.json", **{name: value})
    with pytest.raises(UsageError) as caught:
        Gpt2Config(pretrained=str(folder)).resolved()
    assert str(caught.value) == f"{folder / 'config.json'}: {complaint}"


def test_more_blocks_to_train_than_there_are_is_refused(stored):
    assert Gpt2Config(pretrained=str(stored), trained_blocks=3).resolved().build(IN)
    with pytest.raises(UsageError, match=r"^gpt2\.trained_blocks is 4, there are 3$"):
        Gpt2Config(pretrained=str(stored), trained_blocks=4).resolved().build(IN)


def test_pickled_weights_are_refused_and_the_line_that_is_named_converts_them(folder, stored):
    (folder / "model.safetensors").unlink()
    torch.save(theirs().state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(UsageError, match="pickled weights are not loaded") as caught:
        built(folder)
    assert "\n" not in str(caught.value)
    exec(str(caught.value).split("once: ")[1])
    found, wanted = blocks_of(built(folder)), blocks_of(built(stored))
    assert all(torch.equal(found[name], x) for name, x in wanted.items())


@pytest.mark.parametrize("name", ["h.1.attn.c_attn.weight", "h.2.ln_2.bias", "ln_f.weight"])
def test_a_tensor_that_does_not_fit_is_named(folder, name):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    whole = tensors.pop(name)
    save_file(tensors, path)
    with pytest.raises(UsageError) as caught:
        built(folder)
    assert str(caught.value) == f"{folder}: the tensor {name} is missing"
    save_file({**tensors, name: whole[:-1].clone()}, path)
    shapes = f"shape {(len(whole) - 1, *whole.shape[1:])}, expected {tuple(whole.shape)}"
    with pytest.raises(UsageError) as caught:
        built(folder)
    assert str(caught.value) == f"{folder}: the tensor {name} has {shapes}"


def test_a_square_layer_is_not_taken_the_wrong_way_round(stored):
    """Of a shape that does not tell rows from columns the numbers must."""
    weight = load_file(stored / "model.safetensors")["h.0.attn.c_proj.weight"]
    found = blocks_of(built(stored))["blocks.0.out.weight"]
    assert torch.equal(found, weight.T) and not torch.equal(found, weight)


def test_damaged_folders_are_one_line(folder, tmp_path):
    config, weights = folder / "config.json", folder / "model.safetensors"
    text, data = config.read_text(), weights.read_bytes()
    for broken in ("", "[]", "{"):
        config.write_text(broken)
        with pytest.raises(UsageError, match=r"config\.json (cannot be read|is not a JSON object)"):
            built(folder)
    config.write_text(text)
    weights.write_bytes(data[: len(data) // 2])
    with pytest.raises(UsageError, match=r"model\.safetensors is not a complete safetensors file"):
        built(folder)
    weights.unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"ln_f.bias": "model-1.safetensors"}}))
    with pytest.raises(UsageError, match=r"model-1\.safetensors is not a complete safetensors file"):
        built(folder)
    index.write_text("{}")
    with pytest.raises(UsageError, match="has no weight_map"):
        built(folder)


# The hub --------------------------------------------------------------------------------------


def test_what_is_no_folder_and_no_id_is_not_asked_for(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", None)
    for name in ("./nowhere", "/nowhere/gpt2", "a/b/c", "own er/gpt2"):
        with pytest.raises(UsageError) as caught:
            Gpt2Config(pretrained=name).resolved()
        assert str(caught.value) == f"gpt2.pretrained: {name} is not a folder, and not a hub id"


def test_without_its_package_the_hub_is_not_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        UsageError,
        match=r"owner/gpt2 is not a folder; .*pip install 'recollect-rl\[hf\]', or",
    ):
        Gpt2Config(pretrained="owner/gpt2").resolved()


@pytest.mark.parametrize("name", ["owner/gpt2", "distilgpt2"])
def test_an_id_is_downloaded_as_data_alone(stored, monkeypatch, name):
    asked = []

    def snapshot_download(repo_id, allow_patterns):
        asked.append(repo_id)
        assert not any(Path(file).match(p) for p in allow_patterns for file in ("x.bin", "x.py", "x.pt"))
        needed = ("config.json", "model-1.safetensors", "model.safetensors.index.json")
        assert all(any(Path(file).match(p) for p in allow_patterns) for file in needed)
        return str(stored)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    found, wanted = blocks_of(built(name)), blocks_of(built(stored))
    assert set(asked) == {name}
    assert all(torch.equal(found[key], x) for key, x in wanted.items())


def test_an_id_that_cannot_be_had_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match=r"the download from the hub failed: \S.*disabled") as caught:
        Gpt2Config(pretrained="owner/gpt2").resolved()
    assert "\n" not in str(caught.value)

    def unknown(*_, **__):
        raise RepositoryNotFoundError("404\n\nRepository Not Found", response=MagicMock())

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unknown)
    with pytest.raises(UsageError, match=r"owner/gpt2 is not a folder, .*failed: 404 Repository Not"):
        Gpt2Config(pretrained="owner/gpt2").resolved()


# Runs -----------------------------------------------------------------------------------------


def config_with(folder, critic=True, **options):
    """A short run in which one branch begins from a folder."""
    deep = BranchConfig(memory=Gpt2Config(pretrained=str(folder), context=4, **options), hidden=(6,))
    return small_config(**{"critic" if critic else "actor": deep})


def weights_of(trained, branch="critic"):
    return {
        name.removeprefix(f"{branch}.memory."): x
        for name, x in trained.agent.state_dict().items()
        if name.startswith(f"{branch}.memory.")
    }


@pytest.mark.parametrize("branch", ["actor", "critic"])
@pytest.mark.parametrize(
    ("options", "frozen"),
    [
        ({}, ()),
        ({"trained_blocks": 3}, ()),
        ({"trained_blocks": 1}, ("trunk.blocks.0.", "trunk.blocks.1.")),
        ({"trained_blocks": 0}, ("trunk.blocks.",)),
        ({"trained_ends": False}, ("tokens.", "trunk.norm.")),
        ({"trained_blocks": 0, "trained_ends": False}, ("tokens.", "trunk.")),
    ],
)
def test_what_does_not_learn_stays_and_the_rest_moves(stored, tmp_path, branch, options, frozen):
    config = replace(config_with(stored, branch == "critic", **options), rollouts=2)
    trained = run_quietly(config, tmp_path)
    wanted = blocks_of(built(stored, torch.float32))
    ended = weights_of(trained, branch)
    still = {name for name in ended if name.startswith(frozen or "nothing")}
    for name, x in wanted.items():
        assert torch.equal(ended[f"trunk.{name}"], x) == (f"trunk.{name}" in still), name
    learning = {n for n, p in trained.agent.named_parameters() if p.requires_grad}
    assert {f"{branch}.memory.{name}" for name in ended.keys() - still} <= learning
    assert not {f"{branch}.memory.{name}" for name in still} & learning
    tensors, _ = checkpoint.read(checkpoint.existing(trained.folder / "checkpoints")[-1])
    held = sum(x.numel() for name, x in tensors.items() if name.endswith("exp_avg"))
    assert held == sum(p.numel() for p in trained.agent.parameters() if p.requires_grad)


def test_what_reads_rows_in_stays_as_the_seed_made_it(stored, tmp_path):
    config = config_with(stored, trained_ends=False)
    one, other = (weights_of(run_quietly(replace(config, rollouts=n), tmp_path, f"{n}")) for n in (1, 3))
    moved = {name for name, x in one.items() if not torch.equal(x, other[name])}
    assert moved == {name for name in one if name.startswith("trunk.blocks.")}


def test_the_run_says_the_true_sizes_and_needs_the_folder_no_more(folder, tmp_path, monkeypatch):
    config = config_with(folder, trained_blocks=1)
    straight = run_quietly(config, tmp_path, "straight")
    said = yaml.safe_load((straight.folder / "config.yaml").read_text())["critic"]["memory"]
    assert (said["width"], said["layers"], said["heads"]) == (WIDTH, BLOCKS, HEADS)
    assert said["pretrained"] == str(folder)
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(5))
    stopped = run_quietly(config, tmp_path, "stopped")
    assert stopped.summary["status"] == "SIGTERM"
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    shutil.rmtree(folder)
    resumed = api.resume(stopped.folder)
    assert resumed.summary["status"] == "finished"
    assert_same_end(straight.folder, resumed.folder)
    loaded = api.load(straight.folder)
    assert loaded.evaluate(episodes=2).returns == straight.evaluate(episodes=2).returns
    ended, read = weights_of(straight), weights_of(loaded)
    assert all(torch.equal(x, read[name]) for name, x in ended.items())
    assert api.resume(straight.folder, quiet=True).summary["status"] == "finished"  # nothing to do


def test_a_run_without_any_checkpoint_begins_from_the_folder_again(folder, tmp_path, monkeypatch):
    config = replace(config_with(folder, trained_blocks=1), save_interval=5)
    straight = run_quietly(config, tmp_path, "straight")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(3))
    stopped = run_quietly(config, tmp_path, "stopped")
    for path in (stopped.folder / "checkpoints").iterdir():
        path.unlink()
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    api.resume(stopped.folder)
    assert_same_end(straight.folder, stopped.folder)


def test_a_run_that_cannot_begin_leaves_no_folder(folder, tmp_path, monkeypatch, capsys):
    (folder / "model.safetensors").unlink()
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    command = ["train", "CartPole-v1", "--critic", "gpt2", "--steps", "100", "--critic.pretrained"]
    for place, complaint in (
        (str(folder), "has no model.safetensors"),
        ("./no", "./no is not a folder"),
    ):
        assert cli.main([*command, place]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and complaint in said
    assert set(tmp_path.iterdir()) == before


def test_flags_say_it_and_take_it_back(stored):
    flags = ["--env.id", "poc", "--critic", "gpt2", "--critic.pretrained", str(stored)]
    flags += ["--critic.trained-blocks", "1", "--critic.trained-ends", "False"]
    config = assemble(flags).critic.memory
    assert config == Gpt2Config(pretrained=str(stored), trained_blocks=1, trained_ends=False)
    flags += ["--critic.pretrained", "None", "--critic.trained-blocks", "None"]
    assert assemble(flags).critic.memory == Gpt2Config(trained_ends=False)
