import { readFile, writeFile } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import { hasErrno } from "@atoll/host";
import { SandboxError, type TemplateName } from "@atoll/protocol";
import { z } from "zod";
import type { Template } from "./template.ts";

/** The description in a template's directory. */
export const TemplateManifest = z.strictObject({
  version: z.literal(1),
  trees: z
    .array(
      z.strictObject({
        at: z.string().startsWith("/"),
        /** A relative path is one of the template's own directories, an absolute one of the host's. */
        lower: z.array(z.string().min(1)).min(1),
      }),
    )
    .min(1),
});
export type TemplateManifest = z.infer<typeof TemplateManifest>;

const fileName = "template.json";

export async function writeManifest(directory: string, manifest: TemplateManifest): Promise<void> {
  await writeFile(join(directory, fileName), `${JSON.stringify(manifest, null, 2)}\n`);
}

/** Returns undefined when there is no template in the directory. */
export async function readTemplate(directory: string, name: TemplateName): Promise<Template | undefined> {
  const path = join(directory, fileName);
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ENOTDIR")) return undefined;
    throw error;
  }
  const manifest = parseManifest(text, path);
  return {
    name,
    trees: manifest.trees.map(({ at, lower }) => ({
      at,
      lower: lower.map((layer) => (isAbsolute(layer) ? layer : join(directory, layer))),
    })),
  };
}

function parseManifest(text: string, path: string): TemplateManifest {
  try {
    return TemplateManifest.parse(JSON.parse(text));
  } catch (cause) {
    throw new SandboxError("unsupported", `Cannot use the template in ${path}: its description cannot be read`, {
      cause,
      suggestion: "It was written by another version, or damaged: remove the template and import it again.",
    });
  }
}
