// Why: what one step did with one request, and the tests that decided it, in the scheduler's order.
// Must not know: how the reasons were found (minivllm/show/explain.py).

import { bySeq, data, groups, nameOf, roles } from "data.js";
import { H, S, T, colour, cross, title } from "marks.js";

export function drawWhy(host, { group, followed, go, hides }) {
  if (!followed) {
    host.append(H("p", { class: "empty" }, "No request is followed."));
    return;
  }
  const answer = data.why[followed]?.[group.step];
  const role = roles.get(followed)?.get(group.index);
  const runs = role && (role.kind === "prefill" || role.kind === "decode");
  host.append(H("h2", { class: "question" }, answer ? (runs ? `What does request ${nameOf(followed)} get in step ${group.step}, and why?` : `Why does request ${nameOf(followed)} not run in step ${group.step}?`) : `Request ${nameOf(followed)} has no part in step ${group.step}.`));
  if (answer && hides) host.append(H("p", { class: "answer" }, "Think first; Enter shows the answer."));
  else if (answer) {
    const [verdict, sentence, reasons] = answer;
    host.append(H("p", { class: "answer", "data-verdict": verdict }, H("bdi", {}, data.sentences[sentence])), gates(reasons, go));
  } else host.append(H("p", { class: "answer" }, roles.get(followed)?.size ? "It has not arrived yet, or it is finished." : "It never reached the scheduler."));
  host.append(history(followed, group, host.clientWidth - 32, go));
}

function gates(reasons, go) {
  return H(
    "ol",
    { class: "gates" },
    reasons.map(([label, sentence, failed, seqs]) =>
      H("li", { class: failed ? "failed" : "" }, H("span", { class: "gate", "aria-label": failed ? "failed" : "passed" }, failed ? "✕" : "✓"), H("b", {}, label), H("bdi", {}, data.sentences[sentence]), H("span", { class: "seqs" }, seqs.slice(0, 2).map((seq) => H("button", { title: bySeq(seq)?.kind ?? "", onclick: () => go(seq) }, seq)))),
    ),
  );
}

/** The request over all steps: prefill high, decode low, waits dotted; click goes there. */
function history(id, here, width, go) {
  const left = 112;
  const cell = (width - left) / groups.length;
  const svg = S("svg", { width, height: 62, class: "history", style: colour(id), role: "img", "aria-label": `steps of request ${nameOf(id)}` });
  svg.append(T(0, 24, "its steps", { class: "strong" }), T(0, 40, `of ${groups.length}`, { class: "third" }));
  const runs = [];
  for (const group of groups) {
    const role = roles.get(id).get(group.index);
    if (!role) continue;
    const x = left + group.index * cell;
    const w = Math.max(1, cell - (cell > 4 ? 1 : 0));
    const g = S("g", { onclick: () => go((group.plan || group.events[0]).seq) }, title(`step ${group.step}: ${role.kind}${role.n ? ` ${role.n}` : ""}`));
    if (role.kind === "prefill") g.append(S("rect", { x, y: 10, width: w, height: 22, class: "mark" }));
    else if (role.kind === "decode") g.append(S("rect", { x, y: 17, width: w, height: 8, class: "mark" }));
    else g.append(S("line", { x1: x, x2: x + cell, y1: 21, y2: 21, class: "wait-line" }));
    if (role.kind === "preempted") g.append(cross(x + cell / 2, 21, 4));
    if (role.finished) g.append(S("rect", { x: x + w - 3, y: 8, width: 3, height: 26, fill: "var(--ink)" }));
    svg.append(g);
    const kind = role.kind === "decode" || role.kind === "prefill" ? "runs" : role.kind === "preempted" ? "preempted" : "waits";
    const last = runs[runs.length - 1];
    if (last && last.kind === kind && last.to === group.index - 1) last.to = group.index;
    else runs.push({ kind, from: group.index, to: group.index });
  }
  let edge = left;
  for (const run of runs) {
    const [a, b] = [groups[run.from].step, groups[run.to].step];
    const text = `${run.kind} ${a === b ? `in step ${a}` : `${a}–${b}`}`;
    const x = left + run.from * cell;
    if (x < edge) continue;
    svg.append(T(Math.min(x, width - text.length * 6.4), 54, text, { class: "third" }));
    edge = x + text.length * 6.8 + 8;
  }
  svg.append(S("rect", { x: left + here.index * cell - 2, y: 3, width: Math.max(cell, 4) + 4, height: 36, rx: 3, class: "here-box" }));
  return svg;
}
