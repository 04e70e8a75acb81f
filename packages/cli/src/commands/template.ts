import { SandboxError } from "@atoll/protocol";
import type { TemplateInfo } from "@atoll/sdk";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import type { Column } from "../output/table.ts";
import { openSource } from "../transfer/open-source.ts";
import { addHelpCommand, verb } from "./verb.ts";

export function templateCommand(cli: Cli): Command {
  const template = addHelpCommand(verb(cli, "template", "List, import and remove what sandboxes start from"));
  template.addCommand(listTemplates(cli)).addCommand(importTemplate(cli)).addCommand(removeTemplate(cli));
  return template;
}

const columns: Column<TemplateInfo>[] = [
  { header: "NAME", cell: ({ name }) => name },
  { header: "KIND", cell: ({ kind }) => kind },
  { header: "ORIGIN", cell: ({ isBuiltIn }) => (isBuiltIn ? "built in" : "imported") },
];

function listTemplates(cli: Cli): Command {
  return verb(cli, "ls", "List the templates").action(async () => {
    const templates = await cli.during("Asking", (await cli.atoll()).templates.list({ signal: cli.signal }));
    if (cli.isJson) await cli.printJson({ templates });
    else await cli.printTable(columns, templates);
  });
}

function importTemplate(cli: Cli): Command {
  return verb(cli, "import", "Make a template from the tar archive of a root filesystem", {
    examples: ["atoll template import alpine rootfs.tar", "docker export box | atoll template import mine -"],
  })
    .argument("<name>", "the name of the template")
    .argument("<archive>", "a tar file, or - for stdin")
    .action(async (name: string, archive: string) => {
      const { templates } = await cli.atoll();
      const source = await openSource(cli, archive, "a tar file");
      const template = await cli.during(`Importing ${name}`, templates.import(name, source, { signal: cli.signal }));
      if (cli.isJson) await cli.printJson(template);
      else await cli.print(template.name);
    });
}

function removeTemplate(cli: Cli): Command {
  return verb(cli, "rm", "Remove a template that no sandbox uses")
    .argument("<name>", "its name")
    .action(async (name: string) => {
      const { templates } = await cli.atoll();
      const known = await cli.during("Looking for the template", templates.list({ signal: cli.signal }));
      const isThere = known.some((template) => template.name === name);
      if (!isThere) {
        const suggestion = '"atoll template ls" lists them.';
        throw new SandboxError("not_found", `Cannot remove the template ${JSON.stringify(name)}: there is none`, {
          suggestion,
        });
      }
      await cli.during(`Removing ${name}`, templates.remove(name, { signal: cli.signal }));
      if (cli.isJson) await cli.printJson({ removed: name });
      else await cli.print(name);
    });
}
