import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import type { EgressAnswer } from "@atoll/engine";
import { EgressPolicy, internetOnly, SandboxId } from "@atoll/protocol";
import { expect, test } from "vitest";
import { EgressGates } from "../../src/egress/egress-gates.ts";

const id = SandboxId.parse("a".repeat(20));
const policy = (...allow: string[]): EgressPolicy => EgressPolicy.parse({ allow });

/** Returns the reply to a sandbox that asks for its machine's own loopback, by name. */
async function ask(terms: { egress: EgressPolicy; egressCeiling?: EgressPolicy }, ceiling: EgressPolicy) {
  const listener = createServer((socket) => socket.on("error", () => undefined)).listen(0, "127.0.0.1");
  await once(listener, "listening");
  const gates = new EgressGates({
    policyOf: () => terms,
    ceiling,
    resolve: async () => ["127.0.0.1"],
    onAllowed: () => undefined,
    onRefused: () => undefined,
  });
  const { port } = listener.address() as AddressInfo;
  const answer: EgressAnswer = await gates.handlerFor(id)({ host: "db.test", port, protocol: "http-connect" });
  if (answer.verdict === "allowed") answer.socket.destroy();
  listener.close();
  await once(listener, "close");
  gates.close();
  return answer.verdict === "allowed" ? "allowed" : answer.reason;
}

/** A policy as it was stored by a server without ceilings. */
const stored = { egress: policy("db.test", "127.0.0.0/8") };
const granted = policy("*", "127.0.0.1");

test("a stored policy is checked against the ceilings at each connection, with the resolved address", async () => {
  expect(await ask(stored, granted)).toContain("the ceiling of its key: 127.0.0.1 is on the machine's own loopback");
  expect(await ask({ ...stored, egressCeiling: granted }, internetOnly)).toContain("the ceiling of this server: 127.0");
  expect(await ask({ ...stored, egressCeiling: granted }, granted)).toBe("allowed");
});

test("what a ceiling denies within an allowed rule is refused", async () => {
  const ceiling = { allow: ["*", "127.0.0.1"], deny: ["db.test"] };
  expect(await ask({ ...stored, egressCeiling: ceiling }, granted)).toContain("its key: the rule db.test denies it");
});
