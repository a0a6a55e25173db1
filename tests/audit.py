"""What a checker of accessibility finds on a page: contrast, names, keyboard, headings, targets, width."""

from pathlib import Path
from typing import Any

from .helpers import seen_by_a_browser

# Prints {scheme, problems}; the numbers are those of WCAG 2.2, level AA.
AUDIT = """
const page = document.querySelector("iframe").contentWindow;
const all = (what) => [...page.document.querySelectorAll(what)];
const style = (node) => page.getComputedStyle(node);
const where = (node) =>
  `${node.tagName}.${node.getAttribute("class") ?? ""} ${(node.textContent || "").trim().slice(0, 40)}`;
const seen = (node) => node.getClientRects().length > 0 && style(node).visibility === "visible";
const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
function luminance(colour) {
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = colour.slice(0, 3).map((c) => linear(c / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function ground(node) {
  for (let at = node; at; at = at.parentElement) {
    const colour = channels(style(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
}
function contrast(node) {
  const ink = channels(node.namespaceURI.endsWith("svg") ? style(node).fill : style(node).color);
  const [low, high] = [luminance(ink), luminance(ground(node))].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}
function* problems() {
  const root = page.document.documentElement;
  if (root.scrollWidth > root.clientWidth) yield `${root.scrollWidth} wide in ${root.clientWidth}`;
  if (!root.lang || !page.document.title || all("h1").length !== 1) yield "language, title or h1";
  for (const node of all("body *")) {
    const words = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!words || !seen(node) || ["NOSCRIPT", "OPTION"].includes(node.tagName)) continue;
    const least = parseFloat(style(node).fontSize) >= 24 ? 3 : 4.5;
    if (contrast(node) < least) yield `contrast ${contrast(node).toFixed(1)}: ${where(node)}`;
  }
  const named = "button, select, input, summary, a, iframe, [role=img], [role=region], [role=group]";
  for (const node of all(named)) {
    const label = node.getAttribute("aria-label") || node.title || node.labels?.[0]?.textContent
      || (node.hasAttribute("role") ? "" : node.textContent);
    if (!label?.trim()) yield `no name: ${where(node)}`;
  }
  for (const node of all("img")) if (!node.hasAttribute("alt")) yield "an image without alt";
  for (const node of all("body *")) {
    const wide = node.scrollWidth > node.clientWidth + 1;
    const scrolls = wide && ["auto", "scroll"].includes(style(node).overflowX);
    const inside = node.querySelector("button, a, [tabindex='0']");
    const stuck = scrolls && node.tabIndex < 0 && !inside;
    if (seen(node) && stuck) yield `scrolls without a keyboard: ${where(node)}`;
    if (node.tabIndex > 0) yield `tab order: ${where(node)}`;
  }
  for (const node of all("button, select, summary")) {
    const box = node.getBoundingClientRect();
    const size = Math.min(box.width, box.height);
    if (seen(node) && size < 24) yield `a target of ${size}: ${where(node)}`;
  }
  const levels = all("h1, h2, h3").map((node) => Number(node.tagName[1]));
  if (levels.some((level, i) => i && level > levels[i - 1] + 1)) yield `headings ${levels}`;
  const ids = all("[id]").map((node) => node.id);
  if (new Set(ids).size < ids.length) yield "an id twice";
  for (const node of all("button, select, a, summary, [tabindex='0']").filter(seen)) {
    node.focus();
    if (page.document.activeElement !== node) yield `no focus: ${where(node)}`;
  }
}
document.querySelector("iframe").addEventListener("load", () => setTimeout(() => {
  all("details").forEach((node) => (node.open = true));
  setTimeout(() => {
    const dark = page.matchMedia("(prefers-color-scheme: dark)").matches;
    document.querySelector("pre").textContent = JSON.stringify({ dark, problems: [...problems()] });
  }, 200);
}, 400));
"""


def audit(page: Path, folder: Path, width: int, dark: bool) -> list[str]:
    """The problems of a page in a browser of this width and colour scheme; skips without Chromium."""
    seen: dict[str, Any] = seen_by_a_browser(page, AUDIT, folder, width, dark)
    assert seen["dark"] == dark
    problems: list[str] = seen["problems"]
    return problems
