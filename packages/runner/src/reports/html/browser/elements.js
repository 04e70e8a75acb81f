/**
 * @typedef {{ name: string, path: string, bytes: number, dropped: number, hidden: number, head: string, tail: string }} Output
 * @typedef {{ argv: string[], cwd: string, user: string, end: string, isGood: boolean, ms: number, outputs: Output[] }} Command
 * @typedef {{
 *   name: string, status: "ok" | "failed" | "skipped" | "cached", reason: string, at: number, ms: number, tries: number,
 *   commands: Command[]
 * }} Stage
 * @typedef {{
 *   kind: string, seed: number | null, canary: string, suiteRan: boolean, passed: number, failed: number, total: number,
 *   end: string, ms: number
 * }} Attempt
 * @typedef {{
 *   id: string, repo: string, model: string, verdict: string, reason: string, at: number, ms: number,
 *   fixed: string[], notFixed: string[], kept: string[], broken: string[],
 *   flaky: { test: string, outcomes: Record<string, number[]> }[],
 *   fixes: { id: string, symptom: string, what: string, why: string, isApplied: boolean }[],
 *   flagged: string[], attempts: Attempt[], stages: Stage[]
 * }} Instance
 * @typedef {{
 *   run: { id: string, client: string, version: string, startedAt: string, ms: number, interrupted: boolean },
 *   verdicts: string[], unfinished: string[], instances: Instance[]
 * }} Data
 */

/** @type {Data} */
export const data = JSON.parse(document.getElementById("data")?.textContent ?? "{}");

/**
 * Makes an element. Text is always set as text, never as HTML.
 *
 * @param {string} name of the element, with classes behind dots
 * @param {Record<string, string>} attributes
 * @param {(Node | string | undefined)[]} children
 * @returns {HTMLElement}
 */
export const make = (name, attributes = {}, ...children) => {
  const [tag = "div", ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length > 0) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== undefined));
  return element;
};

/** @param {number} ms */
export const duration = (ms) => {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
};

/** @param {number} bytes */
export const size = (bytes) => {
  if (bytes < 1024) return `${bytes} bytes`;
  return bytes < 1024 ** 2 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
};

/** @param {string} verdict */
export const words = (verdict) => verdict.replaceAll("_", " ");

/** @param {string} verdict */
export const badge = (verdict) => make(`span.badge.${verdict}`, {}, words(verdict));

export const longestMs = Math.max(1, ...data.instances.map(({ ms }) => ms));

/**
 * @typedef {{ instance: Instance, meta: string, logs: string[], row: HTMLTableRowElement, details: HTMLTableRowElement,
 *   hits: HTMLElement, isOpen: boolean }} Entry
 */

export const state = { query: "", verdicts: new Set(), sort: "order", ascending: true };
