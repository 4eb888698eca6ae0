// Which characters of an answer were drafted. They are kept as lengths of runs (the target's own, drafted, own, ...)
// and shown by the browser's highlights, which change no element.

export const canPaint = Boolean(globalThis.CSS?.highlights);
const highlight = canPaint ? new Highlight() : null;
if (canPaint) CSS.highlights.set("drafted", highlight);
const NEAR = 40; // characters: how far a single character is looked for

// Add `pieces`, [text, whether it was drafted], to `runs`.
export function note(runs, pieces) {
  for (const [text, drafted] of pieces) {
    if (runs.length === 0) runs.push(0);
    if ((runs.length - 1) % 2 === Number(drafted)) runs[runs.length - 1] += text.length;
    else runs.push(text.length);
  }
}

// Colour what `runs` says of `source` in `node`, which shows it; returns the ranges, to be given to `clear`.
export function paint(node, source, runs) {
  const ranges = canPaint ? [...drafted(node, source, runs)] : [];
  ranges.forEach((range) => highlight.add(range));
  return ranges;
}

export const clear = (ranges = []) => ranges.forEach((range) => highlight.delete(range));

function* drafted(node, source, runs) {
  const ends = [];
  runs.reduce((sum, length) => (ends[ends.length] = sum + length), 0);
  let run = 0;
  for (const [text, start, end, place] of places(node, source)) {
    for (let at = start; at < end; ) {
      while (run < ends.length && ends[run] <= place + at - start) run++;
      if (run === ends.length) return;
      const until = Math.min(end, ends[run] - place + start);
      const [startContainer, startOffset, endContainer, endOffset] = [text, at, text, until];
      if (run % 2) yield new StaticRange({ startContainer, startOffset, endContainer, endOffset });
      at = until;
    }
  }
}

// Where each text that `node` shows stands in `source`: [text node, start, end, place of start]. Markup was left out
// of the text but its order is that of the source, so each piece is the next one of its kind.
function* places(node, source) {
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  let at = 0;
  while (walker.nextNode()) {
    const text = walker.currentNode, parent = text.parentElement;
    if (parent.tagName === "BUTTON") continue;
    const silent = parent.parentElement.tagName === "FIGCAPTION"; // the language: part of the source, yet not coloured
    let start = 0;
    for (const line of text.data.split("\n")) {
      const place = source.indexOf(line, at);
      if (line && place >= 0) {
        if (!silent) yield [text, start, start + line.length, place];
        at = place + line.length;
      } else if (line && !silent) {
        at = yield* characters(text, start, line, source, at);
      }
      start += line.length + 1;
    }
  }
}

// The same for a line that the source writes differently, with entities or escapes; returns where it ends.
function* characters(text, start, line, source, at) {
  for (let n = 0; n < line.length; n++) {
    const place = source.indexOf(line[n], at);
    if (place < 0 || place > at + NEAR) continue;
    yield [text, start + n, start + n + 1, place];
    at = place + 1;
  }
  return at;
}
