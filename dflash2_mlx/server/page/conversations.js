// Conversations and settings, kept in this browser and nowhere else. Knows storage and plain objects, no elements.

const PREFIX = "dflash2-mlx chat ", SETTINGS = "dflash2-mlx settings", OPEN = "dflash2-mlx open";
const LONGEST_TITLE = 60; // characters
const TURN = [
  ...["role", "content", "reasoning", "thought", "numbers", "reason", "stopped", "error", "leftOut", "drafted"],
];

// A browser that forbids storage keeps everything until the page is left.
function storage(name) {
  try {
    window[name].setItem("dflash2-mlx test", "");
    window[name].removeItem("dflash2-mlx test");
    return window[name];
  } catch {
    const kept = new Map();
    return {
      getItem: (key) => kept.get(key) ?? null,
      setItem: (key, value) => kept.set(key, value),
      removeItem: (key) => kept.delete(key),
      key: (n) => [...kept.keys()][n] ?? null,
      get length() {
        return kept.size;
      },
    };
  }
}

const lasting = storage("localStorage");
export const tab = storage("sessionStorage"); // gone with the tab

function read(key) {
  try {
    return JSON.parse(lasting.getItem(key));
  } catch {
    return null; // written by something else
  }
}

export function fresh(turns = []) {
  const id = Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
  return { id, title: "", changed: Date.now(), turns };
}

export function titleOf({ title, turns }) {
  const first = turns[0]?.content.trim().split("\n")[0] ?? "";
  return title || (first.length > LONGEST_TITLE ? `${first.slice(0, LONGEST_TITLE)}…` : first) || "New chat";
}

// All conversations, the one changed last first.
export function all() {
  const keys = Array.from({ length: lasting.length }, (_, n) => lasting.key(n));
  const kept = keys.filter((key) => key.startsWith(PREFIX)).map(read).filter((chat) => Array.isArray(chat?.turns));
  return kept.sort((a, b) => b.changed - a.changed);
}

export function load(id) {
  const chat = read(PREFIX + id);
  return Array.isArray(chat?.turns) ? chat : null;
}

// Keep `chat`; false where the storage is full.
export function save(chat) {
  const turns = chat.turns.map((turn) => Object.fromEntries(TURN.map((name) => [name, turn[name]])));
  try {
    lasting.setItem(PREFIX + chat.id, JSON.stringify({ ...chat, turns }));
    return true;
  } catch {
    return false;
  }
}

export const remove = (id) => lasting.removeItem(PREFIX + id);

// The conversation that this tab shows, so that a reload comes back to it.
export const lastOpen = () => load(tab.getItem(OPEN));
export const noteOpen = (id) => tab.setItem(OPEN, id);

export const settings = () => read(SETTINGS) ?? {};
export function keepSettings(values) {
  try {
    lasting.setItem(SETTINGS, JSON.stringify(values));
  } catch {} // they hold until the page is left
}
