// @module-tag gvisor
import { tmpdir } from "node:os";
import { expect, test } from "vitest";
import { doctor } from "../../packages/engine/src/doctor/doctor.ts";
import { detectRunsc, minimumRunscDate } from "../../packages/engine/src/doctor/runsc-features.ts";

test("the runsc of this machine says what it can do", async () => {
  const runsc = await detectRunsc();
  expect(runsc.date ?? minimumRunscDate).toBeGreaterThanOrEqual(minimumRunscDate);
  expect(runsc.platforms).toContain("systrap");
  expect(runsc.flags).toContain("file-access");
  expect(runsc.subcommands).toContain("checkpoint");
});

test("the machine that runs the tests lacks nothing but the guest that was left out", async () => {
  const { findings } = await doctor({ dataDir: tmpdir(), guestPath: "/no/such/guest" });
  const lacking = findings.filter(({ status }) => status === "missing").map(({ name }) => name);
  expect(lacking).toEqual(["guest program"]);
});
