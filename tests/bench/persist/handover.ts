import type { ApiEvent, PhaseTimes } from "@atoll/protocol";
import { Sandbox } from "@atoll/sdk";
import { takeTurns, type Comparison } from "../benchmark.ts";
import { assertGreeting, greeter } from "../first-byte.ts";
import type { Lab } from "../lab.ts";
import { PhaseTally } from "./phase-tally.ts";
import { ServerPair, type PairMember, type StoreKind } from "./server-pair.ts";

/** A sandbox runs on one server, and a client runs a command in it through another server. */
export const handovers: readonly Comparison[] = [handover("file", "a directory"), handover("s3", "a bucket of S3")];

function handover(kind: StoreKind, where: string): Comparison {
  return {
    name: `persist.handover_${kind}`,
    title:
      `hand a running sandbox to another server through ${where}, to its answer there; ` +
      "rival: our own pause and resume on one server",
    unit: "ms",
    better: "lower",
    bar: { of: "ratio", is: "at most", value: 3 },
    rounds: { full: 30, quick: 10 },
    run: (lab, rounds) => measure(lab, rounds, kind),
  };
}

async function measure(lab: Lab, rounds: number, kind: StoreKind): ReturnType<Comparison["run"]> {
  await using pair = await ServerPair.open(`${lab.dir}/pair`, kind);
  const [first, second] = pair.members;
  await using local = await Sandbox.create({ client: first.client });
  await using persistent = await Sandbox.create({ client: first.client, persistent: true });
  const tally = new PhaseTally();
  let from = first;
  const samples = await takeTurns(lab, rounds, {
    ours: async () => {
      const to = from === first ? second : first;
      const handle = await to.handle(persistent.id);
      const atMs = Date.now();
      const startMs = performance.now();
      await greet(lab, handle);
      const tookMs = performance.now() - startMs;
      const [left, arrived] = await lab.until(
        Promise.all([
          firstPhases(from, persistent.id, (event) => event.type === "sandbox.handed_over" && event.atMs >= atMs),
          firstPhases(to, persistent.id, (event) => isResumed(event) && event.atMs >= atMs),
        ]),
        "events of a hand-over",
      );
      // The rest is time that neither server reports: the lease, the download, the request and its answer.
      tally.add({ ...renamed(left, "there "), ...arrived }, tookMs, "way");
      from = to;
      return tookMs;
    },
    rival: async () => {
      const startMs = performance.now();
      await lab.until(local.pause(), "end of a pause");
      await greet(lab, local);
      return performance.now() - startMs;
    },
  });
  return { ...samples, phases: tally.last(rounds), checks: [] };
}

async function greet(lab: Lab, sandbox: Sandbox): Promise<void> {
  const { stdout } = await lab.until(sandbox.commands.run([...greeter.argv]), "end of a command");
  assertGreeting(stdout);
}

function isResumed(event: ApiEvent): boolean {
  return event.type === "sandbox.state" && event.to === "running";
}

function renamed(phases: PhaseTimes, prefix: string): PhaseTimes {
  return Object.fromEntries(Object.entries(phases).map(([phase, ms]) => [`${prefix}${phase}`, ms]));
}

async function firstPhases(
  member: PairMember,
  sandboxId: string,
  isMeant: (event: ApiEvent) => boolean,
): Promise<PhaseTimes> {
  for await (const event of member.client.events({ cursor: 0, sandboxId })) {
    if (isMeant(event) && "phases" in event) return event.phases ?? {};
  }
  throw new Error(`The events of server ${member.server.url} have ended`);
}
