/**
 * @import { Command, Entry, Instance, Output } from "./elements.js"
 */
import { badge, duration, make, size, state } from "./elements.js";

// Timelines.

/**
 * @param {Instance} instance
 * @param {number} scaleMs what the whole width stands for
 */
export const timeline = (instance, scaleMs) => {
  const line = make("div.line");
  for (const stage of instance.stages) {
    const part = make(`i.stage-${stage.name}.${stage.status}`, {
      title: `${stage.name}: ${stage.status}, ${duration(stage.ms)}`,
    });
    part.style.left = `${(100 * Math.max(0, stage.at - instance.at)) / scaleMs}%`;
    part.style.width = `${(100 * stage.ms) / scaleMs}%`;
    line.append(part);
  }
  return line;
};

/** @param {Instance} instance */
const fullTimeline = (instance) => {
  const rows = instance.stages.map((stage) => {
    const track = make("div.track");
    const part = make(`i.stage-${stage.name}.${stage.status}`);
    part.style.left = `${(100 * Math.max(0, stage.at - instance.at)) / Math.max(1, instance.ms)}%`;
    part.style.width = `${(100 * stage.ms) / Math.max(1, instance.ms)}%`;
    track.append(part);
    const note = stage.status === "ok" ? duration(stage.ms) : `${duration(stage.ms)}, ${stage.status}`;
    return make("div.lane", {}, make("span.name", {}, stage.name), track, make("span.ms", {}, note));
  });
  return make("div.timeline", {}, ...rows);
};

// Logs.

/**
 * The text with everything that matches the search marked.
 *
 * @param {string} text
 * @returns {(Node | string)[]}
 */
const marked = (text) => {
  const query = state.query;
  if (query === "") return [text];
  const lower = text.toLowerCase();
  // A letter whose lower case is longer would move every place behind it.
  if (lower.length !== text.length) return [text];
  /** @type {(Node | string)[]} */
  const parts = [];
  let from = 0;
  for (let at = lower.indexOf(query); at >= 0 && parts.length < 4000; at = lower.indexOf(query, from)) {
    parts.push(text.slice(from, at), make("mark", {}, text.slice(at, at + query.length)));
    from = at + query.length;
  }
  return [...parts, text.slice(from)];
};

/** @param {Output} output */
const outputBlock = (output) => {
  const facts = [output.name, size(output.bytes), output.path];
  if (output.dropped > 0) facts.push(`${output.dropped} bytes dropped from the file`);
  const block = make("pre", { tabindex: "0" }, ...marked(output.head));
  if (output.hidden > 0) block.append(make("span.gap", {}, `\n… ${output.hidden} bytes are in the file only …\n`));
  block.append(...marked(output.tail));
  return make("div.output", {}, make("p.facts", {}, facts.join(" · ")), block);
};

/**
 * @param {Command} command
 * @param {boolean} isOpen
 */
const commandBlock = (command, isOpen) => {
  const title = make(
    "summary",
    {},
    make(`span.end${command.isGood ? "" : ".bad"}`, {}, command.end),
    make(
      "code",
      {},
      command.argv
        .filter((word) => !word.startsWith("--unset="))
        .join(" ")
        .replaceAll(/\s+/g, " ")
        .slice(0, 300),
    ),
    make("span.ms", {}, duration(command.ms)),
  );
  const block = /** @type {HTMLDetailsElement} */ (make("details.command", {}, title));
  let isFilled = false;
  const fill = () => {
    if (isFilled || !block.open) return;
    isFilled = true;
    block.append(
      make(
        "pre.argv",
        {},
        command.argv
          .map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\\\''")}'`))
          .join(" "),
      ),
    );
    block.append(make("p.facts", {}, `in ${command.cwd} as ${command.user}`));
    block.append(...command.outputs.map(outputBlock));
  };
  block.addEventListener("toggle", fill);
  block.open = isOpen;
  fill();
  return block;
};

/** @param {Command} command */
const matches = (command) =>
  state.query !== "" &&
  command.outputs.some(({ head, tail }) => `${head}\n${tail}`.toLowerCase().includes(state.query));

/** @param {Instance} instance */
const logs = (instance) => {
  const stages = instance.stages.filter(({ commands, reason }) => commands.length > 0 || reason !== "");
  const blocks = stages.map((stage) => {
    const title = make("h4", {}, stage.name, make(`span.status.${stage.status}`, {}, stage.status));
    const last = stage.commands.length - 1;
    return make(
      "div.stage",
      {},
      title,
      stage.reason === "" ? undefined : make("p.reason", {}, ...marked(stage.reason)),
      ...stage.commands.map((command, index) => {
        const isRelevant = instance.verdict !== "resolved" && stage.name === "test" && index === last;
        return commandBlock(command, matches(command) || (state.query === "" && isRelevant));
      }),
    );
  });
  return make("section", {}, make("h3", {}, "Stages and logs"), ...blocks);
};

// Details of an instance.

/**
 * @param {string} title
 * @param {string[]} ids
 * @param {string} mark
 * @param {boolean} isOpen
 */
const testList = (title, ids, mark, isOpen) => {
  if (ids.length === 0) return undefined;
  const block = make("details.tests", isOpen ? { open: "" } : {}, make("summary", {}, `${title}: ${ids.length}`));
  const list = make(`ul.${mark}`);
  for (const id of ids.slice(0, 2000)) list.append(make("li", {}, ...marked(id)));
  if (ids.length > 2000) list.append(make("li.gap", {}, `and ${ids.length - 2000} more`));
  block.append(list);
  return block;
};

/** @param {Instance} instance */
const testsSection = (instance) => {
  const lists = [
    testList("Still failing (FAIL_TO_PASS)", instance.notFixed, "bad", true),
    testList("Broken (PASS_TO_PASS)", instance.broken, "bad", true),
    testList("Fixed (FAIL_TO_PASS)", instance.fixed, "good", instance.fixed.length <= 10),
    testList("Kept (PASS_TO_PASS)", instance.kept, "good", false),
  ].filter((list) => list !== undefined);
  const flaky = instance.flaky.map(({ test, outcomes }) => {
    const seen = Object.entries(outcomes).map(([outcome, seeds]) => `${outcome} with seed ${seeds.join(", ")}`);
    return make("li", {}, make("code", {}, test), ` ${seen.join("; ")}`);
  });
  if (flaky.length > 0) lists.push(make("div", {}, make("h4", {}, "Flaky tests"), make("ul", {}, ...flaky)));
  return lists.length === 0 ? undefined : make("section", {}, make("h3", {}, "Tests"), ...lists);
};

/** @param {Instance} instance */
const attemptsSection = (instance) => {
  if (instance.attempts.length === 0) return undefined;
  const titles = ["test run", "seed", "passed", "failed", "canary", "end", "time"];
  const rows = instance.attempts.map((attempt) =>
    make(
      "tr",
      {},
      ...[
        attempt.suiteRan ? attempt.kind : `${attempt.kind}, cut short`,
        attempt.seed === null ? "" : String(attempt.seed),
        String(attempt.passed),
        String(attempt.failed),
        attempt.canary,
        attempt.end,
        duration(attempt.ms),
      ].map((text) => make("td", {}, text)),
    ),
  );
  const table = make("table.plain", {}, make("tr", {}, ...titles.map((title) => make("th", {}, title))), ...rows);
  return make("section", {}, make("h3", {}, "Test runs"), table);
};

/** @param {Instance} instance */
const fixesSection = (instance) => {
  const fixes = instance.fixes.map(({ id, symptom, what, why, isApplied }) =>
    make("li", {}, make("b", {}, id), isApplied ? "" : " (suggested)", `: ${what}. ${why} `, make("q", {}, symptom)),
  );
  if (fixes.length === 0 && instance.flagged.length === 0) return undefined;
  const flagged =
    instance.flagged.length === 0
      ? undefined
      : make("p.warning", {}, `The prediction changes ${instance.flagged.join(", ")}, which can change results.`);
  return make("section", {}, make("h3", {}, "Environment and integrity"), flagged, make("ul", {}, ...fixes));
};

/** @param {Entry} entry */
export const fill = ({ instance, details }) => {
  const cell = make("td", { colspan: "6" });
  const facts = [instance.repo, instance.model === "" ? "" : `model ${instance.model}`, duration(instance.ms)];
  cell.append(
    make("p.reason", {}, badge(instance.verdict), " ", ...marked(instance.reason)),
    make("p.facts", {}, facts.filter((fact) => fact !== "").join(" · ")),
    fullTimeline(instance),
    ...[testsSection(instance), attemptsSection(instance), fixesSection(instance), logs(instance)].filter(
      (section) => section !== undefined,
    ),
  );
  details.replaceChildren(cell);
};

/**
 * @param {Entry} entry
 * @param {boolean} isOpen
 */
export const expand = (entry, isOpen) => {
  entry.isOpen = isOpen;
  entry.row.querySelector("button")?.setAttribute("aria-expanded", String(isOpen));
  entry.details.hidden = !isOpen;
  if (isOpen) fill(entry);
  else entry.details.replaceChildren();
};
