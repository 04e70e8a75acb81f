import { expect, test } from "vitest";
import { ThreatLedger, type Threat } from "../../src/threats/threat-ledger.ts";

function open(): { ledger: ThreatLedger; threats: Threat[] } {
  const threats: Threat[] = [];
  const thresholds = { protocol_violation: 1, seccomp_kill: 3, limit_violations: 0, operator: 0 };
  const ledger = new ThreatLedger({ thresholds, windowMs: 1_000, onThreat: (threat) => threats.push(threat) });
  return { ledger, threats };
}

test("one violation of the protocol is a threat, and says what it was", () => {
  const { ledger, threats } = open();
  ledger.report("a", "protocol_violation", "a frame of a giant length", 0);
  expect(threats).toMatchObject([{ id: "a", kind: "protocol_violation" }]);
  expect(threats[0]?.reason).toContain("giant");
});

test("other signs are a threat when there are enough of one kind, of one subject, in the time", () => {
  const { ledger, threats } = open();
  for (const [id, atMs] of [
    ["a", 0],
    ["b", 10],
    ["a", 20],
    ["a", 1_010],
    ["b", 1_100],
  ] as const) {
    ledger.report(id, "seccomp_kill", "x", atMs);
  }
  expect(threats).toEqual([]);
  ledger.report("a", "seccomp_kill", "x", 1_015);
  expect(threats.map(({ id }) => id)).toEqual(["a"]);
});

test("a kind without a threshold is counted and never a threat, in bounded memory", () => {
  const { ledger, threats } = open();
  for (let time = 0; time < 1_000; time += 1) ledger.report("a", "limit_violations", "y".repeat(10_000), 5);
  expect(threats).toEqual([]);
  expect(ledger.reportsOf("a")).toHaveLength(100);
  expect(ledger.reportsOf("a")[0]?.details).toHaveLength(500);
  ledger.forget("a");
  expect(ledger.reportsOf("a")).toEqual([]);
});
