import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { deriveKey, secretBytes, verifyLog } from "@atoll/guard";
import { AuditHeadText, SandboxError, type AuditHead, type AuditLine, type AuditVerification } from "@atoll/protocol";
import { InvalidArgumentError, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { exitCodes } from "../exit-code.ts";
import { parseDuration } from "../input/duration.ts";
import { wholeNumber } from "../input/number.ts";
import { findSandboxId } from "../lookup/find-sandbox.ts";
import { counted, formatTime } from "../output/amount.ts";
import { printable } from "../output/printable.ts";
import type { Column } from "../output/table.ts";
import { addHelpCommand, verb } from "./verb.ts";

export function auditCommand(cli: Cli): Command {
  const audit = addHelpCommand(verb(cli, "audit", "Read the audit log, and check that it is what was written"));
  return audit
    .addCommand(tailCommand(cli))
    .addCommand(queryCommand(cli))
    .addCommand(verifyCommand(cli))
    .addCommand(headCommand(cli));
}

function tailCommand(cli: Cli): Command {
  return verb(cli, "tail", "Show the last lines", { examples: ["atoll audit tail", "atoll audit tail -f -n 0 --json"] })
    .option("-n, --lines <number>", "how many lines", wholeNumber("a number of lines", 0, 1_000), 10)
    .option("-f, --follow", "go on with each new line")
    .action(async ({ lines, follow = false }: { lines: number; follow?: boolean }) => {
      const { audit } = await cli.atoll();
      for await (const message of audit.tail({ lines, follow, signal: cli.signal })) {
        if (message.type === "skipped") cli.note(`${message.lines} lines came too fast: "atoll audit query" has them.`);
        else if (cli.isJson) await cli.printJson(message.line);
        else await cli.print(textOf(cli, message.line));
      }
    });
}

interface QueryOptions {
  who?: string;
  what?: string;
  sandbox?: string;
  result?: string;
  since?: string;
  until?: string;
  before?: number;
  limit: number;
}

function queryCommand(cli: Cli): Command {
  return verb(cli, "query", "Find lines: the newest that match, oldest first", {
    examples: [
      "atoll audit query --since 1h --what killSandbox",
      "atoll audit query --sandbox 4k2 --limit 1000 --json",
      "atoll audit query --result permission_denied --since 2026-01-31T00:00:00Z",
    ],
  })
    .option("--who <principal>", "the id of a key, sandbox:<id>, or server")
    .option("--what <action>", "the name of a route or of an action of the server, such as runCommand")
    .option("--sandbox <sandbox>", "about this one: its id, or the beginning of it")
    .option("--result <result>", "ok, or the code of an error")
    .option("--since <time>", "not before this time, or this long ago: 2026-01-31T12:00:00Z, 1h", parseTime)
    .option("--until <time>", "before this time, or this long ago", parseTime)
    .option("--before <seq>", "before the line with this number", wholeNumber("a number", 1, Number.MAX_SAFE_INTEGER))
    .option("--limit <number>", "how many lines at most", wholeNumber("a number of lines", 1, 1_000), 100)
    .action(async ({ sandbox, ...options }: QueryOptions) => {
      const { audit } = await cli.atoll();
      const sandboxId = sandbox === undefined ? undefined : await findSandboxId(cli, sandbox);
      const query = { ...options, ...(sandboxId === undefined ? {} : { sandboxId }) };
      const page = await cli.during("Reading the log", audit.query(query, { signal: cli.signal }));
      if (cli.isJson) await cli.printJson(page);
      else await cli.printTable(columns, page.lines);
      if (page.hasMore) cli.note("There are older lines: give --before with the number of the first one shown.");
    });
}

interface VerifyOptions {
  dir?: string;
  secret?: string;
  head?: AuditHead;
}

function verifyCommand(cli: Cli): Command {
  return verb(cli, "verify", "Check every line: of the server's log, or of a directory without a server", {
    examples: [
      "atoll audit verify",
      "atoll audit verify --head 1742:9f2c…",
      "atoll audit verify --dir /var/lib/atoll/audit",
      "atoll audit verify --dir ./copy --secret /var/lib/atoll/secret",
    ],
  })
    .option("--head <seq:hash>", "an earlier head, which the log must still contain", parseHead)
    .option("--dir <directory>", "the audit directory of a server, or a copy of it, instead of asking a server")
    .option("--secret <file>", "the secret of the server; with --dir, the one beside the directory by default")
    .action(async ({ dir, secret, head }: VerifyOptions) => {
      const { signal } = cli;
      const verifying =
        dir === undefined
          ? (await cli.atoll()).audit.verify({ head, signal })
          : verifyLog(dir, { key: await readKey(dir, secret), expected: head, signal });
      const found = await cli.during("Checking the log", verifying);
      if (cli.isJson) await cli.printJson(found);
      else await report(cli, found);
      if (!found.isIntact) cli.exitCode = exitCodes.failure;
    });
}

function headCommand(cli: Cli): Command {
  return verb(cli, "head", "Print the number and hash of the last line, to keep elsewhere", {
    examples: ["atoll audit head", 'atoll audit verify --head "$(cat kept-head)"'],
  }).action(async () => {
    const head = await cli.during("Asking", (await cli.atoll()).audit.head({ signal: cli.signal }));
    if (cli.isJson) await cli.printJson(head);
    else await cli.print(`${head.seq}:${head.hash}`);
  });
}

async function report(cli: Cli, found: AuditVerification): Promise<void> {
  const { isIntact, isAuthenticated, head, firstSeq, files, lines, unchainedLines, problems, repairs } = found;
  const place = ({ file, line }: (typeof problems)[number]): string =>
    file === undefined ? "log" : line === undefined ? file : `${file}:${line}`;
  for (const problem of problems) {
    await cli.print(`${cli.style("bad", printable(place(problem)))}  ${problem.kind}  ${printable(problem.message)}`);
  }
  if (found.hasMoreProblems) await cli.print("There are more problems than are listed.");
  for (const { seq, message } of repairs) await cli.print(`${cli.style("busy", `line ${seq}`)}  ${printable(message)}`);
  const verdict = isIntact ? cli.style("good", "intact") : cli.style("bad", "not intact");
  const kept = firstSeq > 1 ? `, from line ${firstSeq} on` : "";
  const size = `${counted(lines, "line")} in ${counted(files, "file")}${kept}`;
  await cli.print(`The log is ${verdict}: ${size}. Head: ${head.seq}:${head.hash}`);
  if (unchainedLines > 0) await cli.print(`${unchainedLines} lines are of a version without a chain.`);
  if (!isAuthenticated) cli.note("Without the server's secret this does not show who wrote the lines; see --secret.");
}

/** Returns the key of the server, or undefined where its secret is not at hand. */
async function readKey(dir: string, path: string | undefined): Promise<Buffer | undefined> {
  let secret: Buffer;
  try {
    secret = await readFile(path ?? join(dirname(dir), "secret"));
  } catch (cause) {
    if (path === undefined) return undefined;
    throw new SandboxError("invalid_argument", `Cannot read the secret in ${path}`, { cause });
  }
  if (secret.byteLength === secretBytes) return deriveKey(secret, "audit log");
  throw new SandboxError("invalid_argument", `Cannot use ${path ?? "the secret"}: it is not the secret of a server`, {
    suggestion: "The secret is the file with this name in the data directory of the server.",
  });
}

function parseHead(text: string): AuditHead {
  const parsed = AuditHeadText.safeParse(text);
  if (!parsed.success) throw new InvalidArgumentError("It is <seq>:<hash>, as atoll audit head prints it.");
  return parsed.data;
}

function parseTime(text: string): string {
  const time = Date.parse(text);
  if (/^\d{4}-/.test(text) && !Number.isNaN(time)) return new Date(time).toISOString();
  return new Date(Date.now() - parseDuration(text)).toISOString();
}

function textOf(cli: Cli, { at, who, what, result, sandboxId = "-", details }: AuditLine): string {
  const separator = cli.isTerminal ? "  " : "\t";
  const tone = result === "ok" || result === "started" ? "good" : "bad";
  return [
    cli.style("quiet", timeOf(at)),
    printable(who),
    cli.style("strong", printable(what)),
    cli.style(tone, printable(result)),
    printable(sandboxId),
    printable(JSON.stringify(details ?? {})),
  ].join(separator);
}

function timeOf(at: string): string {
  const atMs = Date.parse(at);
  return Number.isNaN(atMs) ? printable(at) : formatTime(atMs);
}

const columns: Column<AuditLine>[] = [
  { header: "SEQ", cell: ({ seq }) => String(seq ?? "-"), align: "right" },
  { header: "TIME", cell: ({ at }) => timeOf(at), plain: ({ at }) => at },
  { header: "WHO", cell: ({ who }) => who },
  { header: "WHAT", cell: ({ what }) => what },
  {
    header: "RESULT",
    cell: ({ result }) => result,
    tone: ({ result }) => (result === "ok" || result === "started" ? undefined : "bad"),
  },
  { header: "SANDBOX", cell: ({ sandboxId }) => sandboxId ?? "-" },
  { header: "DETAILS", cell: ({ details }) => JSON.stringify(details ?? {}), isDetail: true },
];
