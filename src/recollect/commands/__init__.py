"""Commands that are one file: list, demo, export; and the options of train, resume and eval."""

from typing import NamedTuple


class Command(NamedTuple):
    """Where a command is: a module, the class of its options, and the function that takes them.

    The function returns the exit code, or None for 0.
    """

    module: str
    options: str
    function: str


COMMANDS = {
    "train": Command("commands.train", "TrainOptions", "run_train"),
    "eval": Command("commands.evaluate", "EvalOptions", "run_eval"),
    "resume": Command("commands.resume", "ResumeOptions", "run_resume"),
    "export": Command("commands.export", "ExportOptions", "run_export"),
    "push": Command("commands.push", "PushOptions", "run_push"),
    "record": Command("commands.record", "RecordOptions", "run_record"),
    "clone": Command("commands.clone", "CloneOptions", "run_clone"),
    "watch": Command("watching", "WatchOptions", "run_watch"),
    "probe": Command("probing", "ProbeOptions", "run_probe"),
    "compare": Command("comparison.compare", "CompareOptions", "run_compare"),
    "tune": Command("tuning.tune", "TuneOptions", "run_tune"),
    "report": Command("reporting.command", "ReportOptions", "run_report"),
    "list": Command("commands.listing", "ListOptions", "run_list"),
    "bench": Command("run.bench", "BenchOptions", "run_bench"),
    "demo": Command("commands.demo", "DemoOptions", "run_demo"),
    "doctor": Command("commands.doctor", "DoctorOptions", "run_doctor"),
    "completion": Command("commands.completion", "CompletionOptions", "run_completion"),
}
