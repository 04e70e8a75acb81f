import { readFile } from "node:fs/promises";
import { hasErrno, writeDurably } from "@atoll/host";
import { LayerPart } from "@atoll/protocol";
import { z } from "zod";
import type { SandboxLayout } from "../store/layout.ts";

const FirstLayers = z.array(LayerPart);

/**
 * Returns the sealed layers that a sandbox began with, the topmost first: those of saved files, or none. They belong to
 * the sandbox until it is killed.
 */
export async function readFirstLayers({ firstLayersFile }: SandboxLayout): Promise<LayerPart[]> {
  try {
    return FirstLayers.parse(JSON.parse(await readFile(firstLayersFile, "utf8")));
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}

export async function writeFirstLayers({ firstLayersFile }: SandboxLayout, layers: LayerPart[]): Promise<void> {
  await writeDurably(firstLayersFile, JSON.stringify(layers));
}
