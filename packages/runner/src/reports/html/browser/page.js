/**
 * @import { Entry, Instance } from "./elements.js"
 */
import { expand, fill, timeline } from "./details.js";
import { badge, data, duration, longestMs, make, state, words } from "./elements.js";

// The head of the page.

/** @param {string} verdict */
const countOf = (verdict) => data.instances.filter((instance) => instance.verdict === verdict).length;
const present = data.verdicts.filter((verdict) => countOf(verdict) > 0);

const head = () => {
  const { run } = data;
  const facts = [
    `${data.instances.length} instance${data.instances.length === 1 ? "" : "s"}`,
    duration(run.ms),
    `client ${run.client}`,
    `atoll ${run.version}`,
    new Date(run.startedAt).toLocaleString(),
    ...(run.interrupted ? ["interrupted"] : []),
  ];
  const theme = make("button.theme", { type: "button", "aria-label": "Light or dark" }, "◐");
  theme.addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });
  return make(
    "header",
    {},
    make("div", {}, make("h1", {}, "Run ", make("code", {}, run.id)), make("p.facts", {}, facts.join(" · "))),
    theme,
  );
};

const glance = () => {
  const total = Math.max(1, data.instances.length);
  const bar = make("div.bar", {
    role: "img",
    "aria-label": present.map((v) => `${countOf(v)} ${words(v)}`).join(", "),
  });
  const chips = make("div.chips");
  for (const verdict of present) {
    const part = make(`div.part.${verdict}`, { title: `${countOf(verdict)} ${words(verdict)}` });
    part.style.width = `${(100 * countOf(verdict)) / total}%`;
    bar.append(part);
    const chip = make(
      "button.chip",
      { type: "button", "aria-pressed": "false" },
      make(`i.${verdict}`),
      words(verdict),
      make("b", {}, String(countOf(verdict))),
    );
    chip.addEventListener("click", () => {
      if (!state.verdicts.delete(verdict)) state.verdicts.add(verdict);
      chip.setAttribute("aria-pressed", String(state.verdicts.has(verdict)));
      update();
    });
    chips.append(chip);
  }
  const squares = make("div.squares", { "aria-hidden": "true" });
  for (const entry of entries) {
    const square = make(`i.${entry.instance.verdict}`, {
      title: `${entry.instance.id}: ${words(entry.instance.verdict)}`,
    });
    square.addEventListener("click", () => {
      expand(entry, true);
      entry.row.scrollIntoView({ block: "start" });
    });
    squares.append(square);
  }
  const unfinished =
    data.unfinished.length === 0
      ? undefined
      : make("p.warning", {}, `${data.unfinished.length} did not end: ${data.unfinished.join(", ")}`);
  const figure = make(
    "p.figure",
    {},
    make("b", {}, String(countOf("resolved"))),
    ` of ${data.instances.length} resolved`,
  );
  return make("section.glance", {}, figure, bar, chips, data.instances.length > 1 ? squares : undefined, unfinished);
};

// The table.

/** @type {Entry[]} */
const entries = data.instances.map((instance) => {
  const share = (/** @type {string[]} */ good, /** @type {string[]} */ bad) =>
    good.length + bad.length === 0 ? "" : `${good.length}/${good.length + bad.length}`;
  const button = make("button.id", { type: "button", "aria-expanded": "false" }, instance.id);
  const hits = make("span.hits");
  const model = instance.model === "" ? undefined : make("span.model", {}, instance.model);
  const row = /** @type {HTMLTableRowElement} */ (
    make(
      "tr.instance",
      {},
      make("td", {}, button, model, hits),
      make("td", {}, badge(instance.verdict)),
      make("td.number", {}, share(instance.fixed, instance.notFixed)),
      make("td.number", {}, share(instance.kept, instance.broken)),
      make("td.number", {}, duration(instance.ms)),
      make("td.wide", {}, timeline(instance, longestMs)),
    )
  );
  const details = /** @type {HTMLTableRowElement} */ (make("tr.details", { hidden: "" }));
  /** @type {Entry} */
  const entry = {
    instance,
    meta: [
      instance.id,
      instance.model,
      instance.verdict,
      instance.reason,
      ...instance.fixed,
      ...instance.notFixed,
      ...instance.kept,
      ...instance.broken,
    ]
      .join("\n")
      .toLowerCase(),
    logs: [],
    row,
    details,
    hits,
    isOpen: false,
  };
  row.addEventListener("click", (event) => {
    if (getSelection()?.type === "Range" && event.target !== button) return;
    expand(entry, !entry.isOpen);
  });
  return entry;
});

/** @param {Entry} entry */
const logsOf = (entry) => {
  if (entry.logs.length === 0) {
    const outputs = entry.instance.stages.flatMap(({ commands }) => commands.flatMap(({ outputs }) => outputs));
    entry.logs = ["", ...outputs.map(({ head, tail }) => `${head}\n${tail}`.toLowerCase())];
  }
  return entry.logs;
};

/** @param {Entry} entry */
const hitsOf = (entry) => {
  let count = 0;
  for (const log of logsOf(entry)) {
    for (let at = log.indexOf(state.query); at >= 0 && count < 1000; at = log.indexOf(state.query, at + 1)) count++;
  }
  return count;
};

/** @type {Record<string, (instance: Instance) => string | number>} */
const sortKeys = {
  instance: ({ id }) => id,
  verdict: ({ verdict }) => data.verdicts.indexOf(verdict),
  fixed: ({ fixed, notFixed }) => fixed.length / Math.max(1, fixed.length + notFixed.length),
  kept: ({ kept, broken }) => kept.length / Math.max(1, kept.length + broken.length),
  time: ({ ms }) => ms,
  timeline: ({ at }) => at,
};

const body = make("tbody");
const shown = make("p.facts", { role: "status" });

const headings = Object.entries({
  instance: "Instance",
  verdict: "Verdict",
  fixed: "Fixed",
  kept: "Kept",
  time: "Time",
  timeline: "Timeline",
}).map(([key, title]) => {
  const button = make("button", { type: "button" }, title);
  const heading = make(`th.${key}`, { scope: "col" }, button);
  button.addEventListener("click", () => {
    state.ascending = state.sort === key ? !state.ascending : true;
    state.sort = key;
    for (const other of headings) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", state.ascending ? "ascending" : "descending");
    update();
  });
  return heading;
});

const update = () => {
  const key = sortKeys[state.sort];
  const sorted =
    key === undefined
      ? entries
      : entries.toSorted((a, b) => {
          const [left, right] = [key(a.instance), key(b.instance)];
          const order = left < right ? -1 : left > right ? 1 : 0;
          return state.ascending ? order : -order;
        });
  const visible = sorted.filter((entry) => {
    if (state.verdicts.size > 0 && !state.verdicts.has(entry.instance.verdict)) return false;
    const hits = state.query === "" ? 0 : hitsOf(entry);
    entry.hits.textContent = hits === 0 ? "" : `${hits >= 1000 ? "1000 or more" : hits} in logs`;
    return state.query === "" || hits > 0 || entry.meta.includes(state.query);
  });
  body.replaceChildren(...visible.flatMap(({ row, details }) => [row, details]));
  for (const entry of visible) if (entry.isOpen) fill(entry);
  shown.textContent = visible.length === entries.length ? "" : `${visible.length} of ${entries.length} shown`;
};

const search = /** @type {HTMLInputElement} */ (
  make("input", { type: "search", placeholder: "Search ids, tests, reasons and logs", "aria-label": "Search" })
);
let timer = 0;
search.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => {
    state.query = search.value.trim().toLowerCase();
    update();
  }, 120);
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || document.activeElement === search) return;
  event.preventDefault();
  search.focus();
});

document
  .getElementById("page")
  ?.append(
    head(),
    glance(),
    make("div.tools", {}, search, shown),
    make("table.instances", {}, make("thead", {}, make("tr", {}, ...headings)), body),
  );
update();
const [only] = entries;
if (entries.length === 1 && only !== undefined) expand(only, true);
