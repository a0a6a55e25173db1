// Two players next to each other, which keep the same step. Nothing is loaded from anywhere.

// pages: [{ title, html, episode }]; each is shown from its own text.
function pair(pages) {
  const linked = element("input", { type: "checkbox", checked: "" });
  const frames = pages.map(({ title, html, episode }) => {
    const frame = element("iframe", { title });
    frame.addEventListener("load", () => frame.contentWindow.pick(episode));
    frame.srcdoc = html;
    return frame;
  });
  // A player reports each of its steps; the others go there too.
  window.mirror = (from, step) => {
    if (!linked.checked) return;
    for (const { contentWindow } of frames) if (contentWindow !== from) contentWindow.go?.(step, true);
  };
  document.body.className = "pair";
  document.body.replaceChildren(
    element("h1", {}, pages.map((page) => page.title).join(" beside ")),
    element("label", {}, linked, " the same step in both"),
    element("main", {}, ...frames),
  );
}

const pages = document.getElementById("pages");
if (pages) pair(JSON.parse(pages.textContent));
