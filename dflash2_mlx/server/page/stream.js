// Asking the server: its key, a request, the chunks of an answer. Knows no conversation.

import { $ } from "./dom.js";
import { tab } from "./conversations.js";

const KEY = "dflash2-mlx key";
const UNREACHABLE = "The server does not answer. Is it still running?";
const NEED_KEY = "The server needs its API key.";
let asked = null; // the dialog's promise while it is open

// Whether the person declined to give the key; nothing asks again until this is false.
export const key = { declined: false };

function askKey(wrong) {
  asked ??= new Promise((done) => {
    $("key-wrong").hidden = !wrong;
    $("key").value = "";
    $("ask-key").showModal();
    $("key").focus();
    $("ask-key").onclose = () => {
      asked = null;
      done($("ask-key").returnValue === "use");
    };
  });
  return asked;
}

$("ask-key").firstElementChild.onsubmit = (event) => {
  event.preventDefault();
  tab.setItem(KEY, $("key").value.trim());
  $("ask-key").close("use");
};
$("ask-key").oncancel = () => ($("ask-key").returnValue = "");
$("no-key").onclick = () => $("ask-key").close("");

const unlessStopped = (words) => (error) => {
  throw error.name === "AbortError" ? error : new Error(words);
};

// The server's reply. Throws an Error in words for a person; AbortError where `signal` says so.
export async function fetched(path, options = {}) {
  for (;;) {
    const mine = tab.getItem(KEY), authorization = mine ? { Authorization: `Bearer ${mine}` } : {};
    const headers = { "Content-Type": "application/json", ...authorization };
    const reply = await fetch(path, { ...options, headers }).catch(unlessStopped(UNREACHABLE));
    if (reply.ok) return reply;
    const told = (await reply.json().catch(() => ({}))).error?.message;
    if (reply.status !== 401) throw new Error(told || `The server answered ${reply.status} ${reply.statusText}.`);
    if (mine !== tab.getItem(KEY)) continue; // another request has asked meanwhile
    if (key.declined || !(await askKey(Boolean(mine)))) {
      key.declined = true;
      throw new Error(NEED_KEY);
    }
  }
}

// The chunks of a chat completion as they come. Throws as `fetched`, and for an error in mid-answer.
export async function* completion(body, signal) {
  const reply = await fetched("/v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ; ) {
    const broken = unlessStopped("The connection broke before the answer was complete.");
    const { value, done } = await reader.read().catch(broken);
    if (done) throw new Error("The connection ended before the answer was complete.");
    const lines = (text + value).split("\n");
    text = lines.pop();
    for (const line of lines) {
      if (line === "data: [DONE]") return;
      if (!line.startsWith("data: ")) continue;
      const chunk = JSON.parse(line.slice(6));
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk;
    }
  }
}
