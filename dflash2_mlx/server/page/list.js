// The list of kept conversations: open, rename, delete, and take a deletion back. Knows elements and the store.

import { $, make } from "./dom.js";
import * as conversations from "./conversations.js";

let removed = []; // by the last deletion

// open: shows a conversation. isOpen: whether it is shown. gone: is told that conversations were deleted.
export function drawList(hands) {
  const chats = conversations.all();
  $("chats-none").hidden = chats.length > 0;
  $("forget").hidden = chats.length === 0;
  $("chats").replaceChildren(...chats.map((chat) => entry(chat, hands)));
  $("forget").onclick = () => forget(chats, hands);
  $("undo").hidden = removed.length === 0;
  const which = removed.length === 1 ? `“${conversations.titleOf(removed[0])}”` : "all";
  $("undo").textContent = `Undo: delete ${which}`;
  $("undo").onclick = () => {
    removed.forEach(conversations.save);
    removed = [];
    drawList(hands);
  };
}

function entry(chat, hands) {
  const title = conversations.titleOf(chat), onclick = () => hands.open(chat.id);
  const open = make("button", { type: "button", className: "title", textContent: title, onclick });
  if (hands.isOpen(chat.id)) open.setAttribute("aria-current", "true");
  const small = (textContent, does, onclick) => {
    const named = { type: "button", title: does, ariaLabel: `${does} ${title}` };
    return make("button", { ...named, className: "small", textContent, onclick });
  };
  const item = make("li", {}, open);
  item.append(
    small("✎", "Rename", () => rename(item, chat, hands)),
    small("✕", "Delete", () => forget([chat], hands)),
  );
  return item;
}

function forget(chats, hands) {
  removed = chats;
  chats.forEach(({ id }) => conversations.remove(id));
  hands.gone(chats.map(({ id }) => id));
  drawList(hands);
  $("undo").focus();
}

function rename(item, chat, hands) {
  const box = make("input", { value: conversations.titleOf(chat), ariaLabel: "Title of the conversation" });
  let kept = false;
  const close = (keep) => {
    if (kept) return;
    kept = true;
    if (keep) hands.rename(chat.id, box.value.trim());
    drawList(hands);
  };
  box.onkeydown = (event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    close(event.key === "Enter");
  };
  box.onblur = () => close(true);
  item.replaceChildren(box);
  box.select();
}
