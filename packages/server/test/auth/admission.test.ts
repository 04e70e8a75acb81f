import { ProfileBook } from "@atoll/guard";
import type { KeyInfo } from "@atoll/protocol";
import { expect, test } from "vitest";
import { Admission } from "../../src/auth/admission.ts";

const key: KeyInfo = {
  id: "k",
  name: "test",
  verbs: ["sandboxes"],
  ownOnly: true,
  policy: { limits: {} },
  createdAtMs: 0,
};

test("what is audited under standard is the server's setting, and under other profiles their own", async () => {
  const admission = new Admission({
    profiles: new ProfileBook(),
    machine: { drivers: () => Promise.resolve({ gvisor: [], local: [] }) },
    server: { limits: {} },
    auditLevel: "none",
    counts: { ofKey: () => 0, all: () => 0 },
  });
  expect(await admission.resolveOne(key, "standard")).toMatchObject({ isBuiltIn: true, profile: { audit: "none" } });
  const all = await admission.resolve(key);
  expect(Object.fromEntries(all.map(({ profile }) => [profile.name, profile.audit]))).toEqual({
    high: "full",
    medium: "basic",
    low: "basic",
    standard: "none",
  });
});
