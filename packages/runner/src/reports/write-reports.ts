import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { stringify } from "yaml";
import { renderCtrf } from "./ctrf.ts";
import { renderGithub } from "./github.ts";
import { renderPage } from "./html/page.ts";
import { renderJunit } from "./junit-xml.ts";
import { renderMarkdown } from "./markdown.ts";
import type { StoredRun } from "./stored-run.ts";
import { writeSweBenchTree } from "./swe-bench-tree.ts";
import { renderTap } from "./tap-text.ts";

interface ReportFormat {
  /** The name of its file, in the directory of the run unless another is given. */
  file: string;
  what: string;
  render(run: StoredRun): string | Promise<string>;
}

const oneFile = {
  json: {
    file: "run_report.json",
    what: "everything, as JSON",
    render: ({ report }) => `${JSON.stringify(report, undefined, 2)}\n`,
  },
  yaml: {
    file: "run_report.yaml",
    what: "everything, as YAML",
    render: ({ report }) => stringify(report, { lineWidth: 0, aliasDuplicateObjects: false }),
  },
  html: { file: "report.html", what: "one page with timelines, tests and logs, to be looked at", render: renderPage },
  markdown: { file: "report.md", what: "a table and what failed", render: renderMarkdown },
  junit: { file: "junit.xml", what: "JUnit XML, a suite per instance", render: renderJunit },
  ctrf: { file: "ctrf.json", what: "Common Test Report Format", render: renderCtrf },
  tap: { file: "report.tap", what: "TAP 14, a test point per instance", render: renderTap },
  github: { file: "github.txt", what: "annotations, for the log of a GitHub action", render: renderGithub },
} as const satisfies Readonly<Record<string, ReportFormat>>;

export type ReportFormatId = keyof typeof oneFile | "swebench";

/** Every format with what it is, for help. */
export const reportFormats: Readonly<Record<ReportFormatId, string>> = {
  ...(Object.fromEntries(Object.entries(oneFile).map(([id, { what }]) => [id, what])) as Record<
    keyof typeof oneFile,
    string
  >),
  swebench: "the tree of SWE-bench: report.json per instance, and a summary per model",
};

/** The text of a report; `undefined` for `swebench`, which is a tree of files. */
export const renderReport = async (run: StoredRun, format: ReportFormatId): Promise<string | undefined> =>
  format === "swebench" ? undefined : oneFile[format].render(run);

/** Writes reports into a directory and returns their paths. */
export async function writeReports(
  run: StoredRun,
  formats: readonly ReportFormatId[],
  directory = run.directory,
): Promise<string[]> {
  await mkdir(directory, { recursive: true });
  const paths: string[] = [];
  for (const format of formats) {
    if (format === "swebench") {
      paths.push(...(await writeSweBenchTree(run, directory)));
    } else {
      const { file, render } = oneFile[format];
      const path = join(directory, file);
      await writeFile(path, await render(run));
      paths.push(path);
    }
  }
  return paths;
}
