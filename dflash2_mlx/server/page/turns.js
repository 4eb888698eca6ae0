// What one turn of a conversation looks like, while it comes and afterwards. Knows elements, asks nobody.

import { $, copy, grow, make, percent, seconds, short } from "./dom.js";
import { blocks } from "./markdown.js";
import { clear, paint } from "./drafted.js";

const NEAR_END = 60; // pixels: so near the end the view follows the text
const SETTLED_S = 0.3; // a rate of less time than this says nothing

// What the buttons do; whoever shows turns fills it in. again(), compare(), edit(turn, text); plain: rate or null
export const hands = { again() {}, compare() {}, edit() {}, plain: () => null };

export function questionNode(turn) {
  turn.node = make("article", { className: "user", ariaLabel: "You" });
  showQuestion(turn);
  return turn.node;
}

function showQuestion(turn) {
  const buttons = row(button("Edit", () => showEditor(turn)), copier(turn));
  const foot = make("div", { className: "tools" }, buttons);
  turn.node.replaceChildren(make("div", { className: "said", textContent: turn.content }), foot);
}

function showEditor(turn) {
  const box = make("textarea", { value: turn.content, ariaLabel: "Edit the message", rows: 1 });
  const form = make("form", { className: "edit" }, box);
  const close = () => {
    showQuestion(turn);
    turn.node.querySelector("button").focus();
  };
  const send = make("button", { className: "main", textContent: "Send" });
  form.append(make("div", { className: "tools" }, row(button("Cancel", close), send)));
  form.onsubmit = (event) => {
    event.preventDefault();
    if (box.value.trim()) hands.edit(turn, box.value);
  };
  box.oninput = () => grow(box);
  box.onkeydown = (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) form.requestSubmit();
    else if (event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
  };
  turn.node.replaceChildren(form);
  grow(box);
  box.focus();
}

export function answerNode(turn) {
  turn.thoughts = make("details", { className: "thoughts", hidden: true }, make("summary"), make("div"));
  turn.text = make("div", { className: "text" });
  turn.foot = make("div", { className: "foot" });
  turn.node = make("article", { className: "answer", ariaLabel: "Answer" }, turn.thoughts, turn.text, turn.foot);
  return turn.node;
}

// Bring an answer's elements up to date. follow: keep the end in view wherever the view is now.
export function draw(turn, { last = true, follow = false, coloured = false } = {}) {
  const talk = $("talk"), atEnd = follow || talk.scrollHeight - talk.scrollTop - talk.clientHeight < NEAR_END;
  const passed = (performance.now() - turn.began) / 1000, thoughts = turn.reasoning.trim();
  turn.node.classList.toggle("busy", !turn.done);
  turn.thoughts.hidden = !thoughts;
  const thinking = !turn.content && !turn.done;
  turn.thoughts.firstChild.textContent =
    thinking ? `Thinking, ${passed.toFixed(0)} s` : `Thought for ${seconds((turn.thought || 0) / 1000)}`;
  if (turn.thoughts.lastChild.textContent !== thoughts) turn.thoughts.lastChild.textContent = thoughts;
  if (turn.shown !== turn.content) render(turn.text, turn.content);
  turn.shown = turn.content;
  turn.foot.replaceChildren(...foot(turn, passed, last));
  turn.node.querySelector(".error")?.remove();
  if (turn.error) turn.node.insertBefore(make("div", { className: "error", textContent: turn.error }), turn.foot);
  colour(turn, coloured);
  if (atEnd) talk.scrollTop = talk.scrollHeight;
}

// Colour the drafted text of a turn, or take the colours away.
export function colour(turn, on) {
  clear(turn.ranges);
  turn.ranges = [];
  if (!on || !turn.drafted) return;
  turn.ranges = [
    ...paint(turn.thoughts.lastChild, turn.reasoning, turn.drafted.reasoning),
    ...paint(turn.text, turn.content, turn.drafted.content),
  ];
}

// Only what changed is made anew, so that a selection in an earlier block survives.
function render(node, text) {
  const now = blocks(text), before = node.blocks ?? [];
  now.forEach((html, n) => {
    if (before[n] === html) return;
    const holder = make("template", { innerHTML: html });
    if (node.children[n]) node.children[n].replaceWith(holder.content);
    else node.append(holder.content);
  });
  while (node.children.length > now.length) node.lastChild.remove();
  node.blocks = now;
}

function foot(turn, passed, last) {
  if (!turn.done) return spans(live(turn, passed));
  const note = (textContent) => make("span", { className: "note", textContent });
  const parts = turn.numbers ? measured(turn.numbers) : [];
  parts.push(...(turn.numbers?.dflash.warnings ?? []).map(note));
  if (turn.stopped) parts.push("Stopped by you.");
  if (turn.reason === "length") parts.push(note("Cut at the most tokens."));
  if (turn.comparing) parts.push("Measuring plain decoding.");
  const buttons = turn.content ? [copier(turn)] : [];
  if (last) buttons.push(button(turn.error ? "Try again" : "Again", () => hands.again()));
  if (last && comparable(turn)) buttons.push(button("Compare with plain", () => hands.compare()));
  return spans([...parts, row(...buttons)]);
}

const button = (textContent, onclick) => make("button", { type: "button", textContent, onclick });
const copier = ({ content }) => button("Copy", ({ target }) => copy(content, target));
const row = (...buttons) => make("span", { className: "buttons" }, ...buttons);

const spans = (parts) => parts.map((part) => (part.nodeType ? part : make("span", { textContent: part })));
const bold = (textContent, title = "") => make("b", { textContent, title });
const comparable = ({ numbers, comparing }) =>
  numbers?.dflash.rounds && numbers.usage.completion_tokens >= 16 && !comparing && !hands.plain(numbers.model);

// The rate and, where the same model was measured without drafts, what drafting makes of it.
function rates(rate, model) {
  const plain = hands.plain(model);
  const how = "Plain decoding was measured in this tab, on the first tokens of one answer.";
  const factor = plain ? [bold(`${(rate / plain).toFixed(1)}× plain`, how), `(${short(plain)} tok/s)`] : [];
  return [bold(`${short(rate)} tok/s`), ...factor];
}

function live(turn, passed) {
  if (!turn.content && !turn.reasoning) return [`Waiting for the first token, ${passed.toFixed(1)} s`];
  const { first, latest, tokens, drafted, accepted } = turn.live ?? {}, span = (latest - first) / 1000;
  if (!(span > SETTLED_S)) return [turn.content ? `Answering, ${passed.toFixed(1)} s` : "\u00a0"];
  const kept = drafted ? [`${percent(accepted / drafted)} of drafts accepted`] : [];
  return [...rates(tokens / span, turn.model), ...kept, `${passed.toFixed(1)} s`];
}

function measured({ usage, dflash, model }) {
  const drafts = dflash.rounds
    ? [`${short(dflash.tokens_per_round)} tokens per round`, `${percent(dflash.draft_acceptance)} of drafts accepted`]
    : [];
  const drafting = dflash.mode !== "plain" && usage.generation_tokens_per_second > 0;
  const rate = drafting ? rates(usage.generation_tokens_per_second, model)
    : [bold(`${short(usage.generation_tokens_per_second)} tok/s`)];
  return [...rate, ...drafts, `first token ${seconds(usage.time_to_first_token)}`];
}
