import type { SnapshotInfo } from "@atoll/sdk";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { formatBytes, formatDuration, formatTime } from "../output/amount.ts";
import { bytesFact, printFacts } from "../output/facts.ts";
import { bytesColumn, type Column } from "../output/table.ts";
import { openSource } from "../transfer/open-source.ts";
import { printStream, saveStream } from "../transfer/save-stream.ts";
import { addHelpCommand, verb } from "./verb.ts";

export function snapshotCommand(cli: Cli): Command {
  const snapshot = addHelpCommand(
    verb(cli, "snapshot", "Save the files of sandboxes under names, for others to start from"),
  );
  const share = (of: Cli): Command => shareSnapshot(of, true);
  const unshare = (of: Cli): Command => shareSnapshot(of, false);
  const whole = [takeSnapshot, listSnapshots, showSnapshot, exportSnapshot, importSnapshot];
  for (const make of [...whole, share, unshare, removeSnapshot]) snapshot.addCommand(make(cli));
  return snapshot;
}

function takeSnapshot(cli: Cli): Command {
  return verb(cli, "create", "Save the files of a sandbox under a name while it goes on", {
    examples: ["atoll snapshot create 4k2 tools", "atoll create --snapshot tools"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .argument("<name>", "the name of the snapshot")
    .action(async (id: string, name: string) => {
      const sandbox = await findSandbox(cli, id);
      const snapshot = await cli.during(`Saving ${name}`, sandbox.snapshot(name, { signal: cli.signal }));
      await printName(cli, snapshot);
    });
}

function listSnapshots(cli: Cli): Command {
  return verb(cli, "ls", "List the snapshots").action(async () => {
    const snapshots = await cli.during("Asking", (await cli.atoll()).snapshots.list({ signal: cli.signal }));
    if (cli.isJson) await cli.printJson({ snapshots });
    else if (snapshots.length === 0) cli.note('No snapshots. "atoll snapshot create <sandbox> <name>" makes one.');
    else await cli.printTable(columns(Date.now()), snapshots);
  });
}

function columns(nowMs: number): Column<SnapshotInfo>[] {
  return [
    { header: "NAME", cell: ({ name }) => name },
    { header: "REFERENCE", cell: ({ ref }) => ref },
    { header: "SHARED", cell: ({ shared }) => (shared ? "yes" : "no") },
    { header: "TEMPLATE", cell: ({ template }) => template },
    {
      header: "CREATED",
      cell: ({ createdAtMs }) => `${formatDuration(nowMs - createdAtMs)} ago`,
      plain: ({ createdAtMs }) => formatTime(createdAtMs),
    },
    bytesColumn("FILES", ({ sizeBytes }) => sizeBytes),
  ];
}

function showSnapshot(cli: Cli): Command {
  return verb(cli, "show", "Show everything about one snapshot")
    .argument("<name>", "its name, or its reference if it is not yours")
    .action(async (name: string) => {
      const snapshot = await cli.during("Asking", (await cli.atoll()).snapshots.get(name, { signal: cli.signal }));
      if (cli.isJson) return cli.printJson(snapshot);
      await printFacts(cli, [
        ["name", snapshot.name],
        ["reference", snapshot.ref],
        ["shared", snapshot.shared ? "yes" : "no"],
        ["template", snapshot.template],
        ["created", formatTime(snapshot.createdAtMs)],
        ["from sandbox", snapshot.sandboxId],
        ["owner", snapshot.owner],
        bytesFact("files", snapshot.sizeBytes),
        bytesFact("stored", snapshot.storedBytes),
        ["sha256", snapshot.sha256],
      ]);
    });
}

function exportSnapshot(cli: Cli): Command {
  return verb(cli, "export", "Write a snapshot to one file that any server can import", {
    examples: [
      "atoll snapshot export tools tools.atoll",
      "atoll snapshot export tools - | ssh there atoll snapshot import tools -",
    ],
  })
    .argument("<name>", "its name, or its reference if it is not yours")
    .argument("<file>", "a path here, or - for stdout")
    .action(async (name: string, file: string) => {
      const { snapshots } = await cli.atoll();
      const { signal } = cli;
      const bytes = await cli.during(`Exporting ${name}`, async (progress) => {
        let sum = 0;
        const onBytes = (count: number): void => {
          sum += count;
          progress.detail = formatBytes(sum);
        };
        const body = await snapshots.export(name, { signal });
        return file === "-" ? printStream(cli, body, onBytes) : saveStream(body, file, { signal, onBytes });
      });
      if (file === "-") return;
      if (cli.isJson) await cli.printJson({ name, file, bytes });
      else await cli.print(file);
    });
}

function importSnapshot(cli: Cli): Command {
  return verb(cli, "import", "Make a snapshot from an exported file", {
    examples: ["atoll snapshot import tools tools.atoll"],
  })
    .argument("<name>", "the name of the snapshot")
    .argument("<file>", "an exported file, or - for stdin")
    .action(async (name: string, file: string) => {
      const { snapshots } = await cli.atoll();
      const source = await openSource(cli, file, "an exported snapshot");
      const importing = snapshots.import(name, source, { signal: cli.signal });
      await printName(cli, await cli.during(`Importing ${name}`, importing));
    });
}

function shareSnapshot(cli: Cli, isShared: boolean): Command {
  const [name, summary] = isShared
    ? (["share", "Let every key start sandboxes from a snapshot, by the reference that this prints"] as const)
    : (["unshare", "Stop sharing a snapshot with other keys"] as const);
  return verb(cli, name, summary, isShared ? { examples: ["atoll snapshot share tools"] } : {})
    .argument("<name>", "its name, or its reference if it is not yours")
    .action(async (given: string) => {
      const { snapshots } = await cli.atoll();
      const sharing = isShared
        ? snapshots.share(given, { signal: cli.signal })
        : snapshots.unshare(given, { signal: cli.signal });
      const snapshot = await cli.during(`Changing ${given}`, sharing);
      if (cli.isJson) await cli.printJson(snapshot);
      else await cli.print(snapshot.ref);
    });
}

function removeSnapshot(cli: Cli): Command {
  return verb(cli, "rm", "Remove a snapshot; sandboxes that started from it keep their files")
    .argument("<name>", "its name, or its reference if it is not yours")
    .action(async (name: string) => {
      await cli.during(`Removing ${name}`, (await cli.atoll()).snapshots.remove(name, { signal: cli.signal }));
      if (cli.isJson) await cli.printJson({ removed: name });
      else await cli.print(name);
    });
}

async function printName(cli: Cli, snapshot: SnapshotInfo): Promise<void> {
  if (cli.isJson) await cli.printJson(snapshot);
  else await cli.print(snapshot.name);
}
