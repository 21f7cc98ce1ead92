// This event: its sentence, what it changed, where it is in the sources; and the payload.
// Must not know: the panels.

import { data, events, nameOf, placeOf } from "data.js";
import { changesOf, fieldsOf } from "facts.js";
import { H, S, chip, textWidth } from "marks.js";
import { stateAt } from "state.js";
import { laneOf, LANES } from "layout.js";

/** [parts: text or [key word, 1 for a loss], note]; of an event of several requests the followed one's. */
function sentenceOf(e, followed) {
  const { of, sentences } = data.said;
  const which = of[placeOf.get(e.seq)];
  return sentences[typeof which === "number" ? which : (which[followed] ?? which[""])];
}

export function drawEvent(host, e, followed, hidden, showPayload) {
  const before = stateAt(e, true);
  const after = stateAt(e);
  const [parts, note] = sentenceOf(e, followed);
  const where = [LANES[laneOf(e)].name, e.up?.kind].filter(Boolean).join(" › ");
  const sentence = H("p", { class: "sentence", "aria-live": "polite" }, hidden ? "What does this event do? Enter shows it." : parts.map((part) => (typeof part === "string" ? H("bdi", {}, part) : H("b", { class: part[1] ? "loss" : "" }, H("bdi", {}, part[0])))));
  const changes = changesOf(e, followed, before, after);
  const fields = changes.length >= 3 ? [] : fieldsOf(e).slice(0, 7 - changes.length);
  const head = H("div", { class: "head" }, H("code", {}, e.kind), H("span", { class: "where" }, where), H("button", { class: "key-button", onclick: showPayload, title: "all fields of the event" }, H("kbd", {}, "P"), " payload"));
  const rows = H("div", { class: "changes" }, changes.map((row) => changeRow(row, hidden)));
  const table = fields.length ? H("div", { class: "fields" }, fields.map(([name, value, size]) => H("div", {}, H("code", {}, name), H("span", { class: "size" }, size), H("bdi", { class: "value", title: value }, hidden ? "?" : shortened(value, 372 - 7.4 * name.length - (size ? 40 : 12)))))) : null;
  const quote = note && !hidden ? H("p", { class: "note" }, H("bdi", {}, note)) : null;
  host.replaceChildren(head, sentence, rows, table || "", quote || "", sources(e));
  while (table?.children.length > 1 && host.scrollHeight > host.clientHeight) table.lastChild.remove(); // all is in the payload
}

/** Numbers from the left, as many as fit; the whole is in the payload. */
function shortened(text, width) {
  if (textWidth(text, 13, 600) <= width) return text;
  const words = text.split(" ");
  let shown = "";
  for (const word of words) {
    if (textWidth(`${shown} ${word} …`, 13, 600) > width) break;
    shown += `${shown ? " " : ""}${word}`;
  }
  return shown ? `${shown} …` : "in the payload (P)";
}

function changeRow({ label, request, before, after, limit, loss }, hidden) {
  const equal = before === after;
  const numbers = hidden
    ? H("span", { class: "numbers" }, H("span", {}, before.toLocaleString("en-US")), " → ", H("b", {}, "?"))
    : H("span", { class: "numbers" }, equal ? H("span", {}, `${after.toLocaleString("en-US")} unchanged`) : [H("span", {}, `${before.toLocaleString("en-US")} → `), H("b", { class: loss ? "loss" : "" }, after.toLocaleString("en-US"))]);
  return H("div", { class: `change${loss ? " lost" : ""}`, "data-label": label, "data-request": request, "data-before": before, "data-after": after }, H("span", { class: "label" }, label, request ? [" ", chip(request, true)] : ""), numbers, hidden ? "" : dumbbell(before, after, limit), H("span", { class: "limit" }, limit ? `of ${limit.toLocaleString("en-US")}` : ""));
}

/** Hollow ring: before; full dot: after; linear from 0 to the limit. */
function dumbbell(before, after, limit) {
  const top = Math.max(limit || 0, before, after, 1);
  const x = (n) => 5 + (70 * n) / top;
  const svg = S("svg", { width: 80, height: 14, class: "dumbbell", "aria-hidden": "true" });
  svg.append(S("path", { d: "M5,7H75M5,3V11M75,3V11", class: "track" }));
  if (before !== after) svg.append(S("line", { x1: x(before), x2: x(after), y1: 7, y2: 7, class: "span" }));
  svg.append(S("circle", { cx: x(before), cy: 7, r: 4, class: "ring" }));
  if (before !== after) svg.append(S("circle", { cx: x(after), cy: 7, r: 4.2, class: "dot" }));
  return svg;
}

function sources(e) {
  const kind = data.kinds[e.kind];
  if (!kind) return "";
  const rows = [];
  if (kind.ours)
    rows.push(H("dt", {}, "ours"), H("dd", {}, H("code", {}, kind.method), ` lines ${kind.ours.lines.join("–")}`, H("div", { class: "file" }, kind.ours.file)));
  else rows.push(H("dt", {}, "ours"), H("dd", {}, H("code", {}, kind.method)));
  if (kind.vllm) rows.push(H("dt", {}, "vLLM"), H("dd", {}, H("a", { href: kind.vllm.url, target: "_blank", rel: "noopener" }, H("code", {}, kind.vllm.name)), ` ↗ lines ${kind.vllm.lines.join("–")}`, H("div", { class: "file" }, kind.vllm.file)));
  else rows.push(H("dt", {}, "vLLM"), H("dd", {}, "has no counterpart"));
  return H("dl", { class: "sources" }, rows);
}

export const closer = (dialog) => H("button", { class: "closer", onclick: () => dialog.close() }, "close ", H("kbd", {}, "Esc"));

/** Everything that the event holds, in a dialog. */
export function openPayload(dialog, e) {
  const common = [
    ["seq", String(e.seq)],
    ["kind", e.kind],
    ["boundary", data.header.boundaries?.[e.kind] || "none"],
    ["process, thread", `${e.proc}, ${e.thread || "main"}`],
    ["t0 – t1", `${e.t0.toLocaleString("en-US")} – ${e.t1.toLocaleString("en-US")}${data.header.clock === "logical" ? " (logical)" : " ns"}`],
    ["parent", e.up ? `${e.up.seq} ${e.up.kind}` : "none"],
    ["step", e.step ?? "none"],
    ["requests", e.reqs.map((id) => `${nameOf(id)} (${id})`).join(", ") || "none"],
  ];
  for (const name of ["error", "view_error"]) if (e[name]) common.push([name, e[name]]);
  const rows = [...common.map(([name, value]) => [name, value, ""]), ...fieldsOf(e, true)];
  dialog.replaceChildren(
    closer(dialog),
    H("h2", {}, H("code", {}, e.kind), ` event ${e.seq.toLocaleString("en-US")} of ${events.length.toLocaleString("en-US")}`),
    H("table", {}, H("tbody", {}, rows.map(([name, value, size]) => H("tr", {}, H("th", {}, H("code", {}, name)), H("td", { class: "size" }, size), H("td", { class: "value" }, H("bdi", {}, value)))))),
  );
  dialog.showModal();
}
