// @module-tag gvisor
import { tmpdir } from "node:os";
import { expect, test } from "vitest";
import { doctor } from "../../packages/engine/src/doctor/doctor.ts";
import { detectRunsc, minimumRunscDate } from "../../packages/engine/src/doctor/runsc-features.ts";

test("the check of runsc reports what runsc supports", async () => {
  const runsc = await detectRunsc();
  expect(runsc.date ?? minimumRunscDate).toBeGreaterThanOrEqual(minimumRunscDate);
  expect(runsc.platforms).toContain("systrap");
  expect(runsc.flags).toContain("file-access");
  expect(runsc.subcommands).toContain("checkpoint");
});

test("the machine that runs the tests lacks only the guest program that this test leaves out", async () => {
  const { findings } = await doctor({ dataDir: tmpdir(), guestPath: "/no/such/guest" });
  const lacking = findings.filter(({ status }) => status === "missing").map(({ name }) => name);
  expect(lacking).toEqual(["guest program"]);
});
