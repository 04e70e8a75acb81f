import { once } from "node:events";
/**
 * A client to be killed: does the work of one round, and says on stdout what it comes to know, a JSON line each. Run as
 * `client-program.ts <url> <key> <sandbox id> <plan as JSON>`; it begins when it is told so on stdin.
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
// Every byte was compared as it came: their number says the rest, in a line that no pipe takes in halves.
say({ outcome: { exitCode, outputBytes: output?.byteLength } });
process.exit(0);
