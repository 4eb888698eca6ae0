// The panel at the side: the numbers of the last answer, and what the server says of itself every two seconds.

import { $, bytes, make, pairs, percent, seconds, short } from "./dom.js";
import { fetched, key } from "./stream.js";

const EVERY_MS = 2000;
let polling, wanted = ""; // wanted: the reasoning level that was kept, until the server's levels are known

export function showNumbers(numbers) {
  $("last").replaceChildren(...(numbers ? listed(numbers) : ["No answer yet."]));
}

function listed({ usage, dflash }) {
  const cached = usage.prompt_tokens_details.cached_tokens;
  const thought = usage.completion_tokens_details.reasoning_tokens;
  const used = dflash.rounds_by_width.flatMap((count, n) => (n && count ? [n + 1] : [])); // of drafted rounds
  const widths = [...new Set([used[0], used.at(-1)])].join(" to ");
  const drafted = dflash.rounds
    ? [["Tokens per round", short(dflash.tokens_per_round)], ["Acceptance", percent(dflash.draft_acceptance)],
      ["Rounds", `${dflash.rounds} of ${widths} rows`]]
    : [["Drafting", dflash.fallback_reason || "no round was drafted"]];
  const rate = short(usage.generation_tokens_per_second);
  return [
    make("div", { className: "big" }, rate, make("small", { textContent: " tok/s" })),
    pairs([
      ...drafted,
      ["First token", seconds(usage.time_to_first_token)],
      ["Prompt", `${usage.prompt_tokens - cached} new, ${cached} cached`],
      ["Answer", `${usage.completion_tokens} tokens${thought ? `, ${thought} thinking` : ""}`],
      ["In all", seconds(usage.total_time)],
    ]),
  ];
}

export async function poll() {
  clearTimeout(polling);
  if (!document.hidden) {
    try {
      showServer(await (await fetched("/api/status")).json());
    } catch (error) {
      $("dot").className = "bad";
      $("where").textContent = error.message;
      $("server").replaceChildren(error.message);
      if (key.declined) $("server").append(" ", make("button", { textContent: "Enter the key", onclick: askAgain }));
    }
  }
  clearTimeout(polling);
  polling = setTimeout(poll, EVERY_MS);
}

function askAgain() {
  key.declined = false;
  poll();
}

function showServer(now) {
  const loading = now.status === "loading", ready = now.status === "ready";
  const requests = `${now.active_requests} running, ${now.waiting_requests} waiting`;
  const busy = now.active_requests + now.waiting_requests > 0;
  $("dot").className = ready ? (busy ? "busy" : "ready") : loading ? "busy" : "bad";
  $("where").textContent = ready ? now.model + (busy ? `, ${requests}` : "")
    : loading ? "loading the model" : `the engine is ${now.status}`;
  if (!now.model) return $("server").replaceChildren(`${$("where").textContent}.`);
  $("server").replaceChildren(pairs([
    ["Model", now.model],
    ["Drafter", now.draft || "none"],
    ["Drafting", now.dflash_active ? `on, block ${now.block_size}` : "off"],
    now.dflash_active ? ["Block", now.block_size_reason] : ["Because", now.dflash_fallback_reason],
    ["Requests", requests],
    ["Kept prefixes", now.prefix_cache_budget_bytes
      ? `${bytes(now.prefix_cache_bytes)} of ${bytes(now.prefix_cache_budget_bytes)}` : "off"],
    ["From the cache", `${percent(now.cache_efficiency)} of prompts`],
    ["Weights", bytes(now.model_memory_used)],
    ["Context", `${now.context_length.toLocaleString("en")} tokens`],
  ]));
  if (now.model === "demo") {
    $("about").textContent =
      "This is the small bundled pair: it learnt some 190 answers by heart, to show how drafting works.";
  }
  if ($("effort").length === 1) showLevels(now.reasoning_levels);
}

// Each meaning once, by its own name where it has one.
function showLevels(levels) {
  const meanings = Object.values(levels);
  const names = Object.keys(levels).filter((level, n) =>
    level === levels[level] || (!(levels[level] in levels) && n === meanings.indexOf(levels[level])));
  $("effort").append(...names.map((level) => make("option", { textContent: level, value: level })));
  if (names.includes(wanted)) $("effort").value = wanted;
}

export function wantLevel(level) {
  wanted = level;
}
