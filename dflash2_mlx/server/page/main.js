// The page at work: the conversation that is shown, its questions and answers, and what the controls do.

import { $, copy, grow, pairs, say } from "./dom.js";
import * as conversations from "./conversations.js";
import { canPaint, note } from "./drafted.js";
import { drawList } from "./list.js";
import { poll, showNumbers, wantLevel } from "./panel.js";
import { completion, key } from "./stream.js";
import { answerNode, colour, draw, hands, questionNode } from "./turns.js";

const PLAIN = "dflash2-mlx plain ", MOST_COMPARED = 64; // tokens
const DRAWN_EVERY_MS = 100, POLL_AFTER_MS = 300;
const VALUES = ["system", "temperature", "most", "effort"];
let chat = conversations.fresh(), current = null; // current: { turn, aborter } of the answer that comes

// Conversations
const list = {
  open: (id) => open(conversations.load(id) ?? conversations.fresh()),
  isOpen: (id) => id === chat.id,
  gone: (ids) => ids.includes(chat.id) && open(conversations.fresh()),
  rename(id, title) {
    const renamed = id === chat.id ? chat : conversations.load(id);
    if (renamed) keep(Object.assign(renamed, { title }));
  },
};

function open(other) {
  current?.aborter.abort();
  current = null;
  chat = other;
  conversations.noteOpen(chat.id);
  const nodes = chat.turns.map((turn) => (turn.role === "user" ? questionNode(turn) : answerNode(turn)));
  $("turns").replaceChildren(...nodes);
  for (const turn of answers()) {
    turn.done = true;
    if (!turn.content && !turn.reasoning) turn.leftOut = true;
    redraw(turn, true);
  }
  $("hello").hidden = chat.turns.length > 0;
  showNumbers(answers().at(-1)?.numbers);
  buttons();
  drawList(list);
  showChats(false);
  show(false);
}

function keep(kept) {
  $("full").hidden = conversations.save(kept);
  drawList(list);
}

const answers = () => chat.turns.filter(({ role }) => role === "assistant");
const redraw = (turn, follow = false) =>
  draw(turn, { last: turn === chat.turns.at(-1), follow, coloured: $("colour").checked });

// Asking
function request(turns) {
  const messages = turns
    .filter(({ leftOut }) => !leftOut)
    .map(({ role, content, reasoning }) => ({ role, content, ...(reasoning ? { reasoning_content: reasoning } : {}) }));
  const system = $("system").value.trim();
  if (system) messages.unshift({ role: "system", content: system });
  const body = { messages, stream: true, stream_options: { include_usage: true, include_drafted: true } };
  if ($("temperature").value !== "") body.temperature = Number($("temperature").value);
  if ($("most").value !== "") body.max_tokens = Number($("most").value);
  if ($("effort").value) body.reasoning_effort = $("effort").value;
  return body;
}

function ask(text) {
  if (!text.trim() || current) return;
  for (const id of ["temperature", "most"]) {
    if ($(id).checkValidity()) continue;
    show(true);
    $(id).reportValidity();
    return;
  }
  const before = answers().at(-1), turn = { role: "user", content: text };
  $("hello").hidden = true;
  show(false);
  chat.turns.push(turn);
  $("turns").append(questionNode(turn));
  $("message").value = "";
  grow($("message"));
  answer();
  if (before) redraw(before, true);
}

async function answer() {
  const own = chat, aborter = new AbortController(), body = request(own.turns);
  const turn = { role: "assistant", content: "", reasoning: "", began: performance.now() };
  turn.drafted = { content: [], reasoning: [] };
  key.declined = false;
  own.turns.push(turn);
  own.changed = Date.now();
  current = { turn, aborter };
  $("turns").append(answerNode(turn));
  keep(own);
  conversations.noteOpen(own.id);
  buttons();
  redraw(turn, true);
  say("Answering.");
  await received(turn, body, aborter.signal);
  turn.done = true;
  turn.leftOut = !turn.content && !turn.reasoning;
  if (turn.leftOut && turn.error) own.turns.at(-2).leftOut = true;
  if (conversations.load(own.id)) keep(own); // unless it was deleted meanwhile
  if (chat === own) redraw(turn);
  if (current?.turn === turn) finished(turn.error || (turn.stopped ? "Stopped." : "The answer is complete."));
}

function finished(words) {
  current = null;
  buttons();
  $("message").focus();
  poll();
  say(words);
}

async function received(turn, body, signal) {
  const timer = setInterval(() => current?.turn === turn && redraw(turn), DRAWN_EVERY_MS);
  setTimeout(poll, POLL_AFTER_MS);
  try {
    for await (const chunk of completion(body, signal)) read(turn, chunk);
  } catch (error) {
    if (error.name === "AbortError") turn.stopped = true;
    else turn.error = error.message;
  }
  clearInterval(timer);
  if (turn.numbers && current?.turn === turn) showNumbers(turn.numbers);
}

function read(turn, { choices, usage, dflash, round, model }) {
  turn.model = model;
  for (const { delta, finish_reason: reason } of choices) {
    turn.reasoning += delta.reasoning_content || "";
    turn.content += delta.content || "";
    turn.reason = reason || turn.reason;
    if (delta.reasoning_content) turn.thought = performance.now() - turn.began;
    if (round) note(turn.drafted[delta.reasoning_content ? "reasoning" : "content"], round.pieces);
  }
  if (round) count(turn, round);
  if (usage) turn.numbers = { usage, dflash, model };
}

// The rate so far: the tokens behind the first piece of text over the time since it came.
function count(turn, { tokens, drafted, accepted }) {
  const now = performance.now();
  if (!turn.live) turn.live = { first: now, latest: now, tokens: 0, drafted: 0, accepted: 0 };
  else Object.assign(turn.live, { latest: now, tokens: turn.live.tokens + tokens });
  turn.live.drafted += drafted;
  turn.live.accepted += accepted;
}

// Hands of the turns
Object.assign(hands, {
  plain: (model) => Number(conversations.tab.getItem(PLAIN + model)) || null,
  again() {
    if (current) return;
    chat.turns.pop().node.remove();
    chat.turns.at(-1).leftOut = false;
    answer();
  },
  // The conversation goes on from the edited message. Where more than its answer would be lost, in a copy.
  edit(turn, text) {
    const place = chat.turns.indexOf(turn), before = chat.turns.slice(0, place);
    open(place + 2 < chat.turns.length ? conversations.fresh(before) : Object.assign(chat, { turns: before }));
    ask(text);
  },
  // The same question once more without drafts, a few tokens of it: what plain decoding does here and now.
  async compare() {
    const turn = chat.turns.at(-1), aborter = new AbortController(), { model, usage } = turn.numbers;
    if (current) return;
    current = { turn: null, aborter };
    turn.comparing = true;
    buttons();
    redraw(turn, true);
    const most = Math.min(MOST_COMPARED, usage.completion_tokens);
    const body = { ...request(chat.turns.slice(0, -1)), speculate: false, max_tokens: most };
    const plain = { content: "", reasoning: "", drafted: { content: [], reasoning: [] }, began: performance.now() };
    await received(plain, body, aborter.signal);
    const rate = plain.numbers?.usage.generation_tokens_per_second;
    if (rate) conversations.tab.setItem(PLAIN + model, rate);
    turn.comparing = false;
    for (const other of answers()) redraw(other);
    if (current?.aborter === aborter) finished(rate ? "Plain decoding is measured." : plain.error || "Stopped.");
  },
});

// Controls
function buttons() {
  $("send").hidden = Boolean(current);
  $("stop").hidden = !current;
}
// On a phone the panel and the list cover the conversation: then it cannot be reached by the Tab key either.
const narrow = matchMedia("(max-width: 860px)");
const cover = () => ($("talk").inert = $("ask").inert = narrow.matches && (isShown("panel") || isShown("chats")));
narrow.onchange = cover;

function toggle(button, name, on, words) {
  document.body.classList.toggle(name, on);
  cover();
  button.setAttribute("aria-expanded", on);
  button.textContent = on ? "Close" : words;
}
const show = (on) => toggle($("panel"), "panel", on, "Settings");
const showChats = (on) => toggle($("list"), "chats", on, "Chats");
const isShown = (name) => document.body.classList.contains(name);

function restoreSettings() {
  const kept = conversations.settings();
  for (const id of VALUES) $(id).value = kept[id] ?? "";
  wantLevel(kept.effort);
  $("colour").checked = canPaint && Boolean(kept.colour);
  $("colours").hidden = !canPaint;
  document.body.classList.toggle("coloured", $("colour").checked);
}
function keepSettings() {
  const values = Object.fromEntries(VALUES.map((id) => [id, $(id).value]));
  conversations.keepSettings({ ...values, colour: $("colour").checked });
}

$("ask").onsubmit = (event) => {
  event.preventDefault();
  ask($("message").value);
};
$("message").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  ask(event.target.value);
};
$("message").oninput = () => grow($("message"));
$("stop").onclick = () => current?.aborter.abort();
$("new").onclick = () => {
  open(conversations.fresh());
  $("message").focus();
};
$("panel").onclick = () => {
  showChats(false);
  show(!isShown("panel"));
};
$("list").onclick = () => {
  show(false);
  showChats(!isShown("chats"));
};
$("side").onchange = keepSettings;
$("colour").onchange = () => {
  document.body.classList.toggle("coloured", $("colour").checked);
  answers().forEach((turn) => colour(turn, $("colour").checked));
};
$("hello").onclick = ({ target }) => target.tagName === "BUTTON" && ask(target.textContent);
$("talk").onclick = ({ target }) => {
  if (!("copy" in target.dataset)) return;
  copy(target.closest("figure").querySelector("code").textContent, target);
};
document.onkeydown = (event) => {
  if (event.key !== "Escape" || $("ask-key").open) return;
  current?.aborter.abort();
  show(false);
  showChats(false);
};
document.onvisibilitychange = () => !document.hidden && poll();
onstorage = () => drawList(list); // another tab has changed it
onpagehide = () => {
  if (!current?.turn) return;
  current.turn.stopped = true;
  conversations.save(chat);
};

const origin = location.origin;
const programs = [["OpenAI", `${origin}/v1`], ["Anthropic", origin], ["Coding agents", "dflash2-mlx launch claude"]];
$("bases").append(pairs(programs));
restoreSettings();
open(conversations.lastOpen() ?? chat);
poll();
