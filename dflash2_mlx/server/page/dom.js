// Elements, numbers as words, the clipboard: what every part of the page uses. Knows nothing of chats.

export const $ = (id) => document.getElementById(id);

export function make(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

export const short = (n) => (n >= 100 ? Math.round(n).toLocaleString("en") : n.toFixed(n >= 10 ? 1 : 2));
export const seconds = (count) => `${short(count)} s`;
export const percent = (share) => `${(100 * share).toFixed(0)} %`;
export const bytes = (count) =>
  count >= 1e9 ? `${(count / 1e9).toFixed(1)} GB` : `${(count / 1e6).toFixed(count && count < 1e7 ? 1 : 0)} MB`;

// Names and values, as a list of definitions.
export const pairs = (rows) =>
  make("dl", {}, ...rows.flatMap(([name, value]) => [
    make("dt", { textContent: name }),
    make("dd", { textContent: value }),
  ]));

// Told to those who hear the page; nothing is shown.
export const say = (words) => ($("said").textContent = words);

export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no clipboard outside https and localhost
    const area = make("textarea", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

// A text box as high as its text.
export function grow(box) {
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight + 2}px`;
}
