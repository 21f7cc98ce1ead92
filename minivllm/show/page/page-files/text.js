// Text: tokens turning to text, with the step and the time of each, and what else might have come.
// Must not know: scheduling.

import { count, events, header, isLogical, nameOf, params, piece, plural, requestIds, time, visible } from "data.js";
import { H, chip, colour, fitted } from "marks.js";

/** Everything that became text of one request: [{e, place, n, id, text, t, candidates, stop}] */
const made = new Map();
export function tokensOf(id) {
  if (made.has(id)) return made.get(id);
  const tokens = [];
  for (const e of events) {
    if (e.kind !== "detokenize" || e.reqs[0] !== id || e.error) continue;
    const ids = Array.isArray(e.new_token_ids) ? e.new_token_ids : [];
    const first = e.num_output_tokens?.[0] ?? tokens.length;
    const many = Array.isArray(e.new_token_ids) ? ids.length : e.new_token_ids || 0;
    for (let i = 0; i < many; i++) tokens.push({ e, n: first + i + 1, id: ids[i] ?? null, text: i === many - 1 ? e.new_text : "", t: e.t1, stop: e.stop_string, candidates: candidatesOf(e, id) });
  }
  made.set(id, tokens);
  return tokens;
}

function candidatesOf(e, id) {
  const sampler = e.group.events.find((other) => other.kind === "sampler.forward" && Array.isArray(other.candidates) && other.candidates.length);
  const row = sampler?.up?.req_ids?.indexOf(id);
  return row >= 0 ? sampler.candidates[row] : null;
}

export function drawText(host, { e, followed, after, go }) {
  if (!followed) {
    host.append(H("p", { class: "empty" }, "The trace has no request yet."));
    return;
  }
  const all = tokensOf(followed);
  const now = all.filter((token) => token.e.t1 <= e.t1);
  host.append(whole(followed, after, now, all), cards(followed, now, go, host.clientWidth - 32), ...stopSearch(now), others(followed, after));
}

function whole(id, after, now, all) {
  const prompt = params[id]?.prompt;
  const state = after.requests.get(id);
  const text = state?.text ?? "";
  const shownPrompt = typeof prompt === "string" ? H("bdi", { class: "prompt" }, visible(shortPrompt(prompt))) : H("span", { class: "prompt grey-bar" }, header.redacted ? `prompt of ${params[id]?.numPrompt ?? "?"} tokens, text left out on purpose` : "prompt given as token ids");
  const finished = all.length && now.length === all.length;
  const cut = now.length && now[now.length - 1].stop != null ? now[now.length - 1].stop : null;
  const output = header.redacted ? H("span", { class: "grey-bar" }, "text left out on purpose") : H("bdi", { class: "output", style: colour(id), "data-text": text }, visible(text) || "nothing yet");
  return H("div", { class: "whole-text" }, chip(id), " ", shownPrompt, " ", output, typeof cut === "string" ? H("bdi", { class: "cut-off" }, visible(cut)) : "", finished && after.requests.get(id)?.status.startsWith("FINISHED") ? H("i", { class: "end-bar", title: "finished" }) : "");
}
const shortPrompt = (text) => {
  const letters = [...text];
  return letters.length <= 240 ? text : `${letters.slice(0, 60).join("")} … ${letters.slice(-170).join("")}`;
};

function cards(id, now, go, width) {
  if (!now.length) return H("p", { class: "empty" }, `No token of request ${nameOf(id)} has become text yet.`);
  const room = Math.max(3, Math.floor(width / 164));
  const shown = now.slice(-room);
  const box = H("div", { class: "token-cards", style: `${colour(id)};grid-template-columns:repeat(${room},1fr)` });
  const anyCandidates = shown.some((token) => token.candidates);
  shown.forEach((token) => {
    const place = now.indexOf(token);
    const gap = place ? token.t - now[place - 1].t : null;
    const text = token.id === null ? "▒" : (piece(token.id) ?? (typeof token.text === "string" && token.text ? visible(token.text) : `id ${token.id}`));
    const isLast = place === now.length - 1;
    box.append(
      H(
        "div",
        { class: "token-card" },
        H("button", { class: `token-name${isLast ? " here" : ""}`, "data-token": token.id, onclick: () => go(token.e.seq), title: `token ${token.n}: ${text}` }, H("bdi", {}, fitted(text, Math.max(88, width / room - 84), 17, 700)), H("span", {}, token.id ?? "")),
        H("div", { class: "token-when" }, H("span", {}, `token ${token.n} · step ${token.e.group.step}`), H("span", {}, isLogical ? "" : gap === null ? time(token.t) : `+${time(gap)}`)),
        anyCandidates && token.candidates ? token.candidates.slice(0, 5).map((candidate) => candidateRow(candidate, token)) : "",
        !anyCandidates ? H("div", { class: "adds" }, addsText(token)) : "",
      ),
    );
  });
  const more = now.length - shown.length;
  return H("div", {}, box, H("p", { class: "third small-note" }, more ? `${plural(more, "token")} before these. ` : "", anyCandidates ? "Bars: probability that the token is drawn from, 0 to 1." : `Detail ${header.detail} has no candidates. Record with --detail 2.`));
}

function addsText(token) {
  if (token.stop != null) return ["completes the ", H("b", { class: "loss" }, "stop string")];
  if (typeof token.text === "number") return `adds ${token.text} characters`;
  if (!token.text) return "adds nothing yet";
  return ["adds ", H("bdi", {}, `“${visible(token.text)}”`)];
}

function candidateRow({ token_id, logprob, processed_logprob }, token) {
  const p = processed_logprob === null || processed_logprob === undefined ? 0 : Math.exp(processed_logprob);
  const chosen = token_id === token.id;
  const text = piece(token_id) ?? String(token_id);
  const percent = p >= 0.1 ? `${Math.round(p * 100)} %` : `${(p * 100).toFixed(1)} %`;
  return H("div", { class: `candidate${chosen ? " chosen" : ""}`, title: `token ${token_id}, log probability ${processed_logprob ?? "masked"}, raw ${logprob}` }, H("div", { class: "bar" }, H("i", { style: `width:${(p * 100).toFixed(2)}%` }), H("bdi", {}, fitted(text, 92, 13, 500))), H("span", {}, percent));
}

function stopSearch(now) {
  const last = now[now.length - 1];
  if (!last || typeof last.stop !== "string") return [];
  const kept = last.e.num_chars[1];
  const text = [...(now.map((token) => (typeof token.text === "string" ? token.text : "")).join("") || "")];
  const before = text.slice(0, kept).slice(-10);
  const offset = Math.max(0, kept - 10);
  return [
    H(
      "div",
      { class: "stop-search" },
      H("span", {}, H("b", {}, "found ", H("bdi", {}, `“${visible(last.stop)}”`)), H("div", { class: "third" }, `after ${kept} characters`)),
      H("div", { class: "letters" }, before.map((letter, i) => H("span", { title: `character ${offset + i}` }, visibleLetter(letter))), H("i", { class: "knife", title: `cut at ${kept}` }), [...last.stop].slice(0, 11).map((letter) => H("span", { class: "struck" }, visibleLetter(letter)))),
      H("span", { class: "loss" }, `cut at ${kept}`),
    ),
  ];
}
const visibleLetter = (letter) => (letter === " " ? "·" : letter === "\n" ? "↵" : letter);

function others(followed, after) {
  const rest = requestIds.filter((id) => id !== followed && after.requests.get(id)?.text);
  if (!rest.length) return "";
  return H("div", { class: "others" }, rest.slice(0, 5).map((id) => H("div", { class: "other" }, chip(id), H("span", { class: "third" }, after.requests.get(id).status.startsWith("FINISHED") ? "done" : "so far"), H("bdi", { style: colour(id) }, visible([...after.requests.get(id).text].slice(-90).join(""))))), rest.length > 5 ? H("p", { class: "third" }, `and ${rest.length - 5} more requests`) : "");
}
