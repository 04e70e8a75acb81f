import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { sandboxStates } from "@atoll/protocol";
import { expect, test } from "vitest";
import { repairPlan } from "../../src/lifecycle/repair-plan.ts";
import { recordIn } from "../support/sandbox-records.ts";

const page = readFileSync(fileURLToPath(new URL("../../../../docs/lifecycle.md", import.meta.url)), "utf8");

test.for(sandboxStates)("a sandbox found %s is repaired as the page says, for a reason", (state) => {
  const plan = repairPlan(recordIn(state));
  const row = page
    .slice(page.indexOf("## After a crash"))
    .split("\n")
    .find((line) => line.split("|")[1]?.trim() === `\`${state}\``);
  expect(row?.split("|")[2]?.trim()).toBe(plan.do);
  expect(plan.because).not.toBe("");
});
