// The strip of steps: the whole run at a glance, and the slider.
// Must not know: events inside a step.

import { config, groups, isLogical, maxTotal, nameOf, requestIds, roles, stepName } from "data.js";
import { H, fillOf } from "marks.js";

export const LEFT = 104;
export const RIGHT = 16;
const BAR = 28;
const ROWS = { top: 35, height: 32 };

let canvas, box, lens, drag;
let stripWidth = 0; // px, measured when all steps are drawn
let placed = {};

export function makeStrip(host, jump) {
  canvas = H("canvas", { "aria-hidden": "true" });
  box = H("div", { class: "box" });
  lens = H("canvas", { class: "lens", "aria-hidden": "true" });
  const slider = H("div", {
    class: "slider",
    role: "slider",
    tabindex: 0,
    "aria-label": "step",
    "aria-valuemin": 0,
    "aria-valuemax": groups.length - 1,
  });
  host.append(
    H("div", { class: "names" }, H("div", {}, "tokens"), H("div", { class: "max" }, `max ${maxTotal}`), H("div", { class: "reqs" }, "requests")),
    canvas,
    slider,
    box,
    lens,
  );
  const at = (event) => {
    const x = event.clientX - slider.getBoundingClientRect().left;
    return Math.max(0, Math.min(groups.length - 1, Math.floor((x / slider.getBoundingClientRect().width) * groups.length)));
  };
  slider.addEventListener("pointerdown", (event) => {
    drag = true;
    slider.setPointerCapture(event.pointerId);
    jump(at(event));
  });
  slider.addEventListener("pointermove", (event) => {
    if (drag) jump(at(event));
    else slider.title = describeStep(groups[at(event)]);
  });
  slider.addEventListener("pointerup", () => (drag = false));
  return slider;
}

/** "step 5 of 54: request 3 preempted", for screen readers and for the title. */
export function describeStep(group) {
  const words = [];
  for (const id of requestIds) {
    const role = roles.get(id).get(group.index);
    if (!role) continue;
    if (role.kind === "preempted") words.push(`request ${nameOf(id)} preempted`);
    if (role.kind === "prefill") words.push(`request ${nameOf(id)} prefill of ${role.n}`);
    if (role.finished) words.push(`request ${nameOf(id)} finished`);
  }
  return `${stepName(group)} of ${groups[groups.length - 1].step}: ${group.total} tokens${words.length ? `; ${words.slice(0, 6).join(", ")}` : ""}`;
}

export function sized(element, width, height) {
  const ratio = (window.devicePixelRatio || 1) * (Number(getComputedStyle(document.body).zoom) || 1);
  element.width = Math.round(width * ratio);
  element.height = Math.round(height * ratio);
  element.style.width = `${width}px`;
  element.style.height = `${height}px`;
  const context = element.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
const css = (value) => {
  const name = /var\((--[\w-]+)\)/.exec(value);
  return name ? getComputedStyle(document.documentElement).getPropertyValue(name[1]).trim() : value;
};

/** Draw all steps. Many steps: one column a pixel. */
export function drawStrip(slider) {
  const width = (stripWidth = slider.clientWidth);
  placed = {};
  const c = sized(canvas, width, 70);
  c.clearRect(0, 0, width, 70);
  const fills = new Map(requestIds.map((id) => [id, css(fillOf(id))]));
  const ink = css("var(--ink)");
  const loss = css("var(--loss)");
  const third = css("var(--third)");
  const cell = width / groups.length;
  const budget = config.max_num_batched_tokens || 0;
  const limit = budget && budget <= 2 * maxTotal ? budget : 0;
  const top = Math.max(maxTotal, limit);
  const rowHeight = Math.min(8, ROWS.height / Math.max(1, requestIds.length));
  const thick = Math.max(1, Math.min(5, rowHeight - 2));
  c.fillStyle = css("var(--rule)");
  c.fillRect(0, 5 + BAR, width, 1);
  if (limit) {
    c.strokeStyle = ink;
    c.setLineDash([4, 3]);
    c.beginPath();
    c.moveTo(0, 5.5 + BAR - (BAR * limit) / top);
    c.lineTo(width, 5.5 + BAR - (BAR * limit) / top);
    c.stroke();
    c.setLineDash([]);
  }
  const barWidth = Math.min(34, Math.max(1, cell > 30 ? cell * 0.5 : cell - 1));
  groups.forEach((group, i) => {
    let y = 5 + BAR;
    for (const [id, n] of Object.entries(group.plan?.num_scheduled_tokens || {})) {
      const height = (BAR * n) / top;
      c.fillStyle = fills.get(id) || third;
      c.fillRect(i * cell + (cell > 30 ? cell / 2 - barWidth / 2 : 0), y - height, barWidth, height);
      y -= height;
    }
    requestIds.forEach((id, row) => {
      const role = roles.get(id).get(i);
      if (!role) return;
      const middle = ROWS.top + rowHeight * (row + 0.5) + 1;
      const x = i * cell;
      c.fillStyle = fills.get(id);
      const gap = cell > 4 ? 1 : 0;
      if (role.kind === "prefill") {
        c.fillRect(x, middle - rowHeight / 2 + 0.5, cell - gap, Math.max(1, rowHeight - 1));
        if (role.hits && cell > 6) {
          const part = ((cell - gap) * role.hits) / Math.max(1, role.after);
          c.fillStyle = css("var(--page)");
          for (let h = 0; h < part; h += 4) c.fillRect(x + h, middle - rowHeight / 2 + 0.5, 2, Math.max(1, rowHeight - 1));
        }
      } else if (role.kind === "decode") c.fillRect(x, middle - thick / 2, cell - gap, thick);
      else {
        c.fillStyle = third;
        for (let h = 1; h < cell; h += 4) c.fillRect(x + h, middle - 0.5, 1.5, 1);
      }
      if (role.kind === "preempted") {
        const size = Math.min(3.5, rowHeight / 2);
        c.strokeStyle = loss;
        c.lineWidth = 1.8;
        c.beginPath();
        c.moveTo(x + cell / 2 - size, middle - size);
        c.lineTo(x + cell / 2 + size, middle + size);
        c.moveTo(x + cell / 2 - size, middle + size);
        c.lineTo(x + cell / 2 + size, middle - size);
        c.stroke();
      }
      if (role.finished) {
        c.fillStyle = ink;
        c.fillRect(x + cell - 2.5, middle - rowHeight / 2, 2.5, Math.max(3, rowHeight));
      }
    });
  });
}

/** Mark the step, and open the lens from it to the timeline below. */
export function placeStrip(slider, group) {
  if (placed.group === group && placed.width === stripWidth) return;
  placed = { group, width: stripWidth };
  const width = stripWidth;
  const cell = width / groups.length;
  const shown = Math.max(cell, 6);
  const left = Math.min(LEFT + group.index * cell - (shown - cell) / 2, LEFT + width - shown);
  box.style.left = `${left - 2}px`;
  box.style.width = `${shown + 4}px`;
  slider.setAttribute("aria-valuenow", group.index);
  slider.setAttribute("aria-valuetext", describeStep(group));
  const c = sized(lens, width + LEFT + RIGHT, 8);
  c.strokeStyle = css("var(--ink)");
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(left, 0);
  c.lineTo(LEFT, 8);
  c.moveTo(left + shown, 0);
  c.lineTo(LEFT + width, 8);
  c.stroke();
}
export const clockNote = () => (isLogical ? "no times recorded: a logical clock says only what came first" : "in event order; true times in the ribbon below");
