// Sizes that the reader chooses: the width of "this event", the height of the timeline, type for a projector.
// Owns: the two splitters, and what is remembered of them.
// Must not know: what the parts show.

import { H } from "marks.js";

const REMEMBERED = "minivllm-sizes";
const WIDTHS = { low: 280, high: 640, usual: 424 };
const sizes = { event: null, timeline: null, presenter: false };

function remember() {
  try {
    localStorage.setItem(REMEMBERED, JSON.stringify(sizes));
  } catch {
    // the page works without a memory
  }
}
function recall() {
  try {
    Object.assign(sizes, JSON.parse(localStorage.getItem(REMEMBERED) || "{}"));
  } catch {
    // as above
  }
}

/** CSS pixels of the page in one pixel of the screen: presenter size and wide screens zoom it. */
export const zoomOf = (element) => element.getBoundingClientRect().width / (element.offsetWidth || 1) || 1;

/** A bar that is dragged, or moved by the arrow keys; a double click gives it back its usual place. */
function splitter(name, vertical, now, set, usual) {
  const bar = H("div", { class: `splitter ${vertical ? "vertical" : "horizontal"}`, id: `split-${name}`, role: "separator", tabindex: 0, "aria-orientation": vertical ? "vertical" : "horizontal", "aria-label": `size of ${name}`, title: "drag, or arrow keys; double click: usual size" });
  const to = (value) => {
    set(value);
    bar.setAttribute("aria-valuenow", Math.round(now()));
    remember();
  };
  let from = null;
  bar.addEventListener("pointerdown", (event) => {
    from = { at: vertical ? event.clientX : event.clientY, size: now() };
    bar.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  bar.addEventListener("pointermove", (event) => {
    if (from) to(from.size + ((vertical ? event.clientX : event.clientY) - from.at) / zoomOf(document.body));
  });
  bar.addEventListener("pointerup", () => (from = null));
  bar.addEventListener("dblclick", () => to(usual));
  bar.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -16, ArrowUp: -16, ArrowRight: 16, ArrowDown: 16 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    to(now() + by);
  });
  bar.setAttribute("aria-valuenow", Math.round(now()));
  return bar;
}

/** Put the splitters in place. timeline: {element, lowest, fit: height -> height}; redraw: after every change. */
export function makeSplitters(main, timeline, redraw) {
  recall();
  const setEvent = (width) => {
    sizes.event = Math.max(WIDTHS.low, Math.min(WIDTHS.high, width));
    main.style.setProperty("--event-width", `${sizes.event}px`);
    redraw();
  };
  const setTimeline = (height) => {
    const most = Math.max(timeline.lowest, document.body.offsetHeight - 360);
    const wanted = Math.max(60, Math.min(most, height));
    const full = timeline.fit(wanted);
    sizes.timeline = Math.min(wanted, Math.max(full, 60));
    timeline.element.style.height = `${sizes.timeline}px`;
    timeline.element.style.overflowY = full > sizes.timeline + 1 ? "auto" : "hidden";
    redraw();
  };
  timeline.element.style.height = `${timeline.lowest}px`;
  timeline.element.after(splitter("timeline", false, () => timeline.element.offsetHeight, setTimeline, timeline.lowest));
  main.children[0].after(splitter("event", true, () => main.children[0].offsetWidth, setEvent, WIDTHS.usual));
  document.body.classList.toggle("presenter", sizes.presenter);
  if (sizes.event) setEvent(sizes.event);
  if (sizes.timeline) setTimeline(sizes.timeline);
}

/** Larger type, for a projector, on and off. */
export function togglePresenter() {
  sizes.presenter = !sizes.presenter;
  document.body.classList.toggle("presenter", sizes.presenter);
  remember();
}
