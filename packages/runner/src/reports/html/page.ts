import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { StoredRun } from "../stored-run.ts";
import { pageData } from "./page-data.ts";

const asset = (name: string): Promise<string> => readFile(new URL(`browser/${name}`, import.meta.url), "utf8");

/** Modules in the order in which they need each other become one script: the page has no other files to import. */
async function script(): Promise<string> {
  const modules = await Promise.all(["elements.js", "details.js", "page.js"].map(asset));
  const joined = modules.map((text) => text.replaceAll(/^import [^;]+;\n/gm, "").replaceAll(/^export /gm, ""));
  return `(() => {\n"use strict";\n${joined.join("\n")}})();`;
}

const hashOf = (text: string): string => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const escaped: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

const html = (text: string): string => text.replaceAll(/[&<>"]/g, (char) => escaped[char] ?? char);

/**
 * The report as one page that needs no other file and no network. What a run has printed is data in it and is only
 * ever shown as text: the policy of the page lets nothing run but its own script, by the hash of it.
 */
export async function renderPage(run: StoredRun): Promise<string> {
  const [style, code] = await Promise.all([asset("page.css"), script()]);
  const data = JSON.stringify(pageData(run)).replaceAll("<", String.raw`\u003c`);
  const policy = [
    "default-src 'none'",
    `script-src ${hashOf(code)}`,
    `style-src ${hashOf(style)}`,
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  const { runId, counts, instances } = run.report;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${html(runId)}: ${counts.resolved} of ${instances.length} resolved</title>
<style>${style}</style>
</head>
<body>
<noscript><p>${counts.resolved} of ${instances.length} resolved. The table and the logs need JavaScript.</p></noscript>
<main id="page"></main>
<script type="application/json" id="data">${data}</script>
<script>${code}</script>
</body>
</html>
`;
}
