import { expect, test } from "vitest";
import { ApiEvent } from "../../packages/protocol/src/api-event.ts";
import { Config, settingNames } from "../../packages/server/src/config/config.ts";
import { listFiles, readText } from "./repository.ts";

/** Returns the rows of the table under a heading, by the name in backquotes in the first cell. */
function tableUnder(page: string, heading: string): Map<string, string[]> {
  const section = readText(page).split(`\n## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  const rows = [...section.matchAll(/^\| `([^`]+)` +\|(.*)\|$/gm)];
  return new Map(rows.map(([, name = "", rest = ""]) => [name, rest.split(" | ").map((cell) => cell.trim())]));
}

/** Returns the names that the page lacks, and those that the code does not have. */
function compare(documented: Iterable<string>, real: Iterable<string>): { missing: string[]; unknown: string[] } {
  const [page, code] = [new Set(documented), new Set(real)];
  return {
    missing: [...code].filter((name) => !page.has(name)),
    unknown: [...page].filter((name) => !code.has(name)),
  };
}

const nothing = { missing: [], unknown: [] };

test("docs/server.md has a row for every setting", () => {
  const table = tableUnder("docs/server.md", "Settings");
  expect(compare(table.keys(), settingNames), "rows of the table of settings").toEqual(nothing);
});

test("docs/server.md shows the real default of every setting", () => {
  for (const [name, [documented]] of tableUnder("docs/server.md", "Settings")) {
    const setting = Config.shape[name as keyof typeof Config.shape];
    // Its default is a path in this checkout.
    if (setting === undefined || name === "guestPath") continue;
    const initial = setting.safeParse(undefined).data;
    const text = typeof initial === "object" ? JSON.stringify(initial) : String(initial);
    expect.soft(documented, `default of ${name}`).toBe(initial === undefined ? "" : `\`${text}\``);
  }
});

test("docs/monitoring.md has a row for every event", () => {
  const types = ApiEvent.options.flatMap(({ shape }) => [...shape.type.values]);
  const table = tableUnder("docs/monitoring.md", "Events");
  expect(compare(table.keys(), types), "rows of the table of events").toEqual(nothing);
});

test("docs/monitoring.md has a row for every metric", () => {
  const sources = ["metrics.ts", "monitor-metrics.ts"].map((name) => readText(`packages/server/src/telemetry/${name}`));
  const metrics = sources.join("").match(/(?<=")atoll_[a-z_]+(?=")/g) ?? [];
  const table = tableUnder("docs/monitoring.md", "Metrics");
  expect(compare(table.keys(), metrics), "rows of the table of metrics").toEqual(nothing);
});

/** Variables that one part of a test run sets for another, or a test for itself. */
const internal = ["ATOLL_TEST_CGROUPS", "ATOLL_TEST_PROGRAMS", "ATOLL_TEST_SECRET", "ATOLL_TEST_SUMMARY"];

test("CONTRIBUTING.md names every variable that set-up and tests read", () => {
  const page = readText("CONTRIBUTING.md").replaceAll("…", "");
  const read = listFiles()
    .filter((path) => /^(tools|tests|packages\/[^/]+\/test|vitest\.config\.ts)(\/|$)/.test(path))
    .flatMap((path) => readText(path).match(/(?<=\benv\[")ATOLL_(?:TEST_|FUZZ_|CACHE_|SKIP)[A-Z0-9_]*/g) ?? []);
  const documented = (name: string) =>
    page.includes(`\`${name}\``) || page.includes(`\`${/^ATOLL_TEST_(S3|GCS)_/.exec(name)?.[0]}\``);
  expect([...new Set(read)].filter((name) => !internal.includes(name) && !documented(name))).toEqual([]);
});
