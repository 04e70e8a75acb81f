import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import type { EgressAnswer } from "@atoll/engine";
import { compilePolicy } from "@atoll/guard";
import { EgressPolicy, type EgressPolicyInput } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createEgressHandler, type EgressDecision, type EgressGate } from "../../src/egress/create-egress-handler.ts";
import type { ResolveName } from "../../src/egress/resolve-name.ts";

let server: Server;
let port: number;
let decisions: EgressDecision[];
let accepted: Socket[];

beforeEach(async () => {
  decisions = [];
  accepted = [];
  server = createServer((socket) => {
    accepted.push(socket);
    socket.on("error", () => undefined);
    socket.write("hello");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  port = (server.address() as AddressInfo).port;
});
afterEach(() => {
  for (const socket of accepted) socket.destroy();
  server.close();
});

interface Lab extends EgressGate {
  ask(host: string, askedPort?: number): Promise<EgressAnswer>;
  change(policy: EgressPolicyInput): void;
}

function gate(policy: EgressPolicyInput, resolve: ResolveName = async () => [], timeoutMs = 5_000): Lab {
  let compiled = compilePolicy(EgressPolicy.parse(policy));
  const made = createEgressHandler({
    policy: () => compiled,
    resolve,
    timeoutMs,
    onDecision: (decision) => decisions.push(decision),
  });
  return {
    ...made,
    ask: (host, askedPort = port) => made.onEgress({ host, port: askedPort, protocol: "http-connect" }),
    change: (next) => {
      compiled = compilePolicy(EgressPolicy.parse(next));
    },
  };
}

const names =
  (table: Record<string, string[]>, asked: string[] = []): ResolveName =>
  async (name) => {
    asked.push(name);
    return table[name] ?? [];
  };

function socketOf(answer: EgressAnswer): Socket {
  if (answer.verdict !== "allowed") throw new Error(answer.reason);
  return answer.socket as Socket;
}

test("an allowed name is connected to, and the decision has the rule and the address", async () => {
  const lab = gate({ allow: ["db.test", "127.0.0.1"] }, names({ "db.test": ["127.0.0.1"] }));
  const socket = socketOf(await lab.ask("DB.test."));
  expect(String((await once(socket, "data"))[0])).toBe("hello");
  expect(decisions).toEqual([
    {
      host: "DB.test.",
      port,
      protocol: "http-connect",
      verdict: "allowed",
      because: "the rule db.test allows it",
      address: "127.0.0.1",
    },
  ]);
  socket.destroy();
});

test("a name that is not allowed is refused without being looked up", async () => {
  const asked: string[] = [];
  const lab = gate({ allow: ["10.0.0.0/8", "good.test"] }, names({}, asked));
  expect(await lab.ask("secret-data.evil.test")).toEqual({ verdict: "refused", reason: "no rule allows it" });
  expect(asked).toEqual([]);
});

describe("an allowed name that resolves to a special address", () => {
  test.for([
    "127.0.0.1",
    "::1",
    "10.1.2.3",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "::ffff:127.0.0.1",
    "224.0.0.1",
  ])("is refused: %s", async (address) => {
    const lab = gate({ allow: ["*"] }, names({ "rebind.test": [address] }));
    expect(await lab.ask("rebind.test")).toMatchObject({ verdict: "refused" });
    expect(accepted).toHaveLength(0);
  });

  test("is refused also for the machine's own addresses", async () => {
    const own = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
    for (const { address } of own) {
      const lab = gate({ allow: ["*", "0.0.0.0/0"] }, names({ "own.test": [address.replace(/%.*/, "")] }));
      expect(await lab.ask("own.test")).toMatchObject({ verdict: "refused" });
    }
  });

  test("is connected to its other addresses", async () => {
    const lab = gate(
      { allow: ["mixed.test", "127.0.0.1"] },
      names({ "mixed.test": ["169.254.169.254", "127.0.0.2", "127.0.0.1"] }),
    );
    socketOf(await lab.ask("mixed.test")).destroy();
    expect(decisions).toMatchObject([{ verdict: "allowed", address: "127.0.0.1" }]);
  });
});

test("a name is resolved once: a second answer cannot redirect the connection", async () => {
  let lookups = 0;
  const lab = gate({ allow: ["rebind.test", "127.0.0.1"] }, async () => {
    lookups += 1;
    return lookups === 1 ? ["127.0.0.1"] : ["169.254.169.254"];
  });
  socketOf(await lab.ask("rebind.test")).destroy();
  expect(lookups).toBe(1);
});

test("a limited number of connections waits for an answer, and the others are refused and reported", async () => {
  const lab = gate({ allow: ["*"] }, () => new Promise(() => undefined), 500);
  const waiting = Array.from({ length: 128 }, () => lab.ask("slow.test"));
  const refused = { verdict: "refused", reason: "too many connections are waiting for an answer" };
  expect(await lab.ask("other.test")).toEqual(refused);
  expect(decisions).toMatchObject([{ host: "other.test", verdict: "refused", because: refused.reason }]);
  for (const answer of await Promise.all(waiting)) expect(answer).toMatchObject({ verdict: "timed_out" });
  expect(await lab.ask("other.test")).toMatchObject({ verdict: "timed_out" });
  expect(decisions).toHaveLength(130);
});

describe("verdicts", () => {
  test("a name without an address is unknown", async () => {
    expect(await gate({ allow: ["*"] }).ask("nowhere.test")).toMatchObject({ verdict: "unknown_name" });
  });

  test("a port without a listener is unreachable", async () => {
    server.close();
    await once(server, "close");
    expect(await gate({ allow: ["127.0.0.1"] }).ask("127.0.0.1")).toEqual({
      verdict: "unreachable",
      reason: "nothing listens there",
    });
  });

  test("a resolver that fails is unreachable, and its message stays on the host", async () => {
    const lab = gate({ allow: ["*"] }, async () => {
      throw new Error("query to 10.255.255.53 failed");
    });
    expect(await lab.ask("a.test")).toEqual({ verdict: "unreachable", reason: "the connection could not be made" });
  });

  test("a resolver that never answers causes a time-out", async () => {
    const lab = gate({ allow: ["*"] }, () => new Promise(() => undefined), 50);
    expect(await lab.ask("a.test")).toMatchObject({ verdict: "timed_out" });
  });
});

test("the second address is tried when the first one fails", async () => {
  const lab = gate(
    { allow: ["two.test", "127.0.0.0/8", "::1"] },
    names({ "two.test": ["::1", "127.0.0.9", "127.0.0.1"] }),
  );
  socketOf(await lab.ask("two.test")).destroy();
  expect(decisions).toMatchObject([{ verdict: "allowed", address: "127.0.0.1" }]);
});

describe("a change of the policy", () => {
  test("applies to the next connection", async () => {
    const lab = gate({ allow: ["127.0.0.1"] });
    socketOf(await lab.ask("127.0.0.1")).destroy();
    lab.change({});
    expect(await lab.ask("127.0.0.1")).toMatchObject({ verdict: "refused" });
  });

  test("applies to a connection that is being made", async () => {
    let finishLookup: (addresses: string[]) => void = () => undefined;
    const lab = gate(
      { allow: ["slow.test", "127.0.0.1"] },
      () =>
        new Promise((resolve) => {
          finishLookup = resolve;
        }),
    );
    const answer = lab.ask("slow.test");
    lab.change({ allow: ["127.0.0.1"] });
    finishLookup(["127.0.0.1"]);
    expect(await answer).toMatchObject({ verdict: "refused" });
  });

  test("closes open connections that are no longer allowed only on request", async () => {
    const lab = gate(
      { allow: ["a.test", "b.test", "127.0.0.1"] },
      names({ "a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"] }),
    );
    const [a, b] = [socketOf(await lab.ask("a.test")), socketOf(await lab.ask("b.test"))];
    lab.change({ allow: ["b.test", "127.0.0.1"] });
    expect([a.destroyed, b.destroyed]).toEqual([false, false]);
    expect(lab.closeForbidden()).toBe(1);
    expect([a.destroyed, b.destroyed]).toEqual([true, false]);
    expect(lab.closeForbidden()).toBe(0);
    lab.change({});
    expect(lab.closeForbidden()).toBe(1);
    expect(b.destroyed).toBe(true);
  });
});
