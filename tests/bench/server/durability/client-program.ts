import { once } from "node:events";
/**
 * A client that the benchmark kills: it does the work of one round and prints the facts that it learns on stdout, one
 * line of JSON each. Run as `client-program.ts <url> <key> <sandbox id> <plan as JSON>`; it starts at the first byte on
 * stdin.
 */
import { writeSync } from "node:fs";
import { Atoll, Sandbox } from "@atoll/sdk";
import type { Plan } from "./plan.ts";
import { doWork } from "./work.ts";

const [baseUrl = "", apiKey = "", sandboxId = "", plan = ""] = process.argv.slice(2);

function say(fact: object): void {
  writeSync(1, `${JSON.stringify(fact)}\n`);
}

const client = new Atoll({ baseUrl, apiKey });
const sandbox = await Sandbox.connect(sandboxId, { client });
say({ isReady: true });
await once(process.stdin, "data");
const { exitCode, output } = await doWork({ client, sandbox, plan: JSON.parse(plan) as Plan, emit: say });
// Every byte was compared when it came, so the number of bytes says the rest, in a line short enough that a pipe never
// splits it.
say({ outcome: { exitCode, outputBytes: output?.byteLength } });
process.exit(0);
