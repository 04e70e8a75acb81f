import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { readRun, writeReports } from "@atoll/runner";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hostile, instanceReport, writeRun } from "../../packages/runner/test/reports/sample-run.ts";
import { BrowserPage, findChromium } from "../support/browser.ts";

const chromium = await findChromium();
const directory = mkdtempSync(join(tmpdir(), "atoll-page-"));
afterAll(() => rmSync(directory, { recursive: true }));

/** Writes the page of a run and returns its address. */
async function pageOf(name: string, reports: Parameters<typeof writeRun>[1], unfinished: string[] = []) {
  const run = await readRun(writeRun(join(directory, name), reports, unfinished));
  const [path = ""] = await writeReports(run, ["html"]);
  return pathToFileURL(path).href;
}

const size = { width: 1280, height: 900 };

const rows = `[...document.querySelectorAll("tr.instance")].map((row) => row.querySelector(".id").textContent)`;

const search = (text: string) => `{
  const input = document.querySelector("input");
  input.value = ${JSON.stringify(text)};
  input.dispatchEvent(new Event("input"));
}`;

const click = (selector: string) => `document.querySelector(${JSON.stringify(selector)}).click()`;

describe.skipIf(chromium === undefined)("the page of a run, in Chromium", () => {
  let page: BrowserPage;
  beforeAll(async () => {
    const url = await pageOf(
      "run",
      [
        instanceReport({ id: "b__b-2", verdict: "resolved" }),
        instanceReport({ id: "a__a-1", verdict: "unresolved", log: "needle in a log\nNeedle again\n" }),
        instanceReport({ id: "c__c-3", verdict: "flaky" }),
      ],
      ["d__d-4"],
    );
    page = await BrowserPage.open(url, size);
  });
  afterAll(() => page[Symbol.asyncDispose]());

  test("has a row per instance, its verdicts at a glance, and what did not end", async () => {
    expect(await page.evaluate(rows)).toEqual(["b__b-2", "a__a-1", "c__c-3"]);
    const text = await page.evaluate<string>("document.body.innerText");
    expect(text).toContain("1 of 3 resolved");
    expect(text).toContain("1 did not end: d__d-4");
    expect(await page.evaluate(`document.querySelectorAll(".bar > .part").length`)).toBe(3);
    expect(await page.evaluate(`document.querySelectorAll("tr.instance .line > i").length`)).toBe(21);
  });

  test("is sorted by a column, up and down", async () => {
    await page.evaluate(click("th.instance button"));
    expect(await page.evaluate(rows)).toEqual(["a__a-1", "b__b-2", "c__c-3"]);
    await page.evaluate(click("th.instance button"));
    expect(await page.evaluate(rows)).toEqual(["c__c-3", "b__b-2", "a__a-1"]);
    expect(await page.evaluate(`document.querySelector("th.instance").ariaSort`)).toBe("descending");
    await page.evaluate(click("th.verdict button"));
    expect(await page.evaluate(rows)).toEqual(["b__b-2", "a__a-1", "c__c-3"]);
  });

  test("is searched, logs included, and shows where", async () => {
    await page.evaluate(search("NEEDLE"));
    await page.until(`${rows}.length === 1`);
    expect(await page.evaluate(rows)).toEqual(["a__a-1"]);
    expect(await page.evaluate(`document.querySelector(".hits").textContent`)).toBe("2 in logs");
    await page.evaluate(click("tr.instance .id"));
    expect(await page.evaluate(`[...document.querySelectorAll("pre mark")].map((mark) => mark.textContent)`)).toEqual([
      "needle",
      "Needle",
    ]);
    await page.evaluate(search(""));
    await page.until(`${rows}.length === 3`);
  });

  test("is filtered by verdict", async () => {
    await page.evaluate(
      `[...document.querySelectorAll(".chip")].find((chip) => /flaky/.test(chip.textContent)).click()`,
    );
    expect(await page.evaluate(rows)).toEqual(["c__c-3"]);
    await page.evaluate(click("tr.instance .id"));
    const text = await page.evaluate<string>(`document.querySelector("tr.details:not([hidden])").innerText`);
    expect(text).toContain("t.py::fix passed with seed 1; failed with seed 0, 2");
    expect(text).toContain("collections-abc");
  });

  test("has the same colours for everything in the dark", async () => {
    const back = `getComputedStyle(document.body).backgroundColor`;
    expect(await page.evaluate(back)).toBe("rgb(255, 255, 255)");
    await page.evaluate(click(".theme"));
    expect(await page.evaluate(back)).toBe("rgb(21, 23, 28)");
  });

  test("runs into no error and asks for nothing else", () => {
    expect(page.problems).toEqual([]);
  });

  test("a hostile run is shown as text", async () => {
    const report = instanceReport({ id: `x__x-${hostile}`, verdict: "unresolved", reason: hostile, log: hostile });
    report.failToPass.failure = [hostile];
    report.model = hostile;
    await using hostilePage = await BrowserPage.open(await pageOf("hostile", [report]), size);
    await hostilePage.until(`document.querySelectorAll("tr.details pre").length > 0`);
    expect(await hostilePage.evaluate("document.title")).toBe("run-1: 0 of 1 resolved");
    expect(await hostilePage.evaluate(`document.querySelectorAll("img, broken").length`)).toBe(0);
    expect(await hostilePage.evaluate(`document.querySelectorAll("script").length`)).toBe(2);
    expect(await hostilePage.evaluate("document.body.innerText")).toContain("onerror=");
    expect(await hostilePage.evaluate("document.body.innerText")).not.toContain("\u202E");
    expect(hostilePage.problems).toEqual([]);
  });

  test("hundreds of instances with long logs are one page that answers", async () => {
    const log = `${"a line of a long log that says nothing at all\n".repeat(300)}the end\n`;
    const verdicts = ["resolved", "unresolved", "env_invalid"] as const;
    const reports = Array.from({ length: 300 }, (_, index) =>
      instanceReport({ id: `o__n-${index}`, verdict: verdicts[index % 3] ?? "resolved", log }),
    );
    await using large = await BrowserPage.open(await pageOf("large", reports), size);
    expect(await large.evaluate(`document.querySelectorAll("tr.instance").length`)).toBe(300);
    await large.evaluate(search("the end"));
    await large.until(`document.querySelector(".hits").textContent !== ""`);
    expect(await large.evaluate(`document.querySelectorAll("tr.instance").length`)).toBe(300);
  });
});
