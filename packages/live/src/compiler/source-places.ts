import { SourceMap } from "node:module";
import type { Artifact } from "./artifact.ts";
import { codeFrame } from "./code-frame.ts";

/** A place in a source of an app, with the lines around it. */
export interface SourcePlace {
  file: string;
  line: number;
  column: number;
  frame: string;
}

/** The folder of an app, as bubblewrap and gVisor show it inside. */
const insideFolder = "/app";
const compiledPlace = /file:\/\/([^\s():]+):(\d+):(\d+)/g;
const runtimeFrame = /^\s+at .*\/runtime-[0-9a-f]{16}\.mjs:\d+:\d+\)?$/;

/** Turns places in compiled code into places in the sources of an app. */
export class SourcePlaces {
  readonly #folder: string;
  #modules: ReadonlyMap<string, Artifact> = new Map();
  #staged: ReadonlyMap<string, Artifact> = new Map();
  readonly #maps = new WeakMap<Artifact, SourceMap>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** The modules that run. */
  use(modules: ReadonlyMap<string, Artifact>): void {
    this.#modules = modules;
    this.#staged = new Map();
  }

  /** Modules that are about to take the place of others, until the next `use` or `stage`. */
  stage(modules: ReadonlyMap<string, Artifact>): void {
    this.#staged = modules;
  }

  /** A stack or a text with stacks, with the paths of the sources, and without what is not the app's. */
  map(text: string): string {
    const mapped = text.replaceAll(compiledPlace, (all, path: string, line: string, column: string) => {
      const artifact = this.#artifact(path);
      const place = artifact === undefined ? undefined : this.#original(artifact, Number(line), Number(column));
      return place === undefined || artifact === undefined
        ? all
        : `${this.#folder}/${artifact.module}:${place.line}:${place.column}`;
    });
    return mapped
      .split("\n")
      .filter((line) => !runtimeFrame.test(line))
      .join("\n");
  }

  /** The first place in the sources that a mapped stack names. */
  first(stack: string | undefined): SourcePlace | undefined {
    for (const rest of stack?.split(`${this.#folder}/`).slice(1) ?? []) {
      const [, file = "", line, column] = /^([^\s():]+):(\d+):(\d+)/.exec(rest) ?? [];
      const artifact = this.#staged.get(file) ?? this.#modules.get(file);
      if (artifact === undefined) continue;
      const position = { line: Number(line), column: Number(column) };
      return { file, ...position, frame: codeFrame(sourceOf(artifact), position) };
    }
    return undefined;
  }

  #artifact(path: string): Artifact | undefined {
    const file = decoded(path);
    for (const folder of [this.#folder, insideFolder]) {
      if (!file.startsWith(`${folder}/`)) continue;
      const module = file.slice(folder.length + 1);
      const artifact = this.#staged.get(module) ?? this.#modules.get(module);
      if (artifact !== undefined) return artifact;
    }
    return undefined;
  }

  #original(artifact: Artifact, line: number, column: number): { line: number; column: number } | undefined {
    let map = this.#maps.get(artifact);
    if (map === undefined) {
      map = new SourceMap(JSON.parse(artifact.map) as ConstructorParameters<typeof SourceMap>[0]);
      this.#maps.set(artifact, map);
    }
    const entry = map.findEntry(line - 1, column - 1);
    if (!("originalLine" in entry)) return undefined;
    return { line: entry.originalLine + 1, column: entry.originalColumn + 1 };
  }
}

/** The source that a source map holds. */
export function sourceOf({ map }: Artifact): string {
  const { sourcesContent } = JSON.parse(map) as { sourcesContent?: (string | null)[] };
  return sourcesContent?.[0] ?? "";
}

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
