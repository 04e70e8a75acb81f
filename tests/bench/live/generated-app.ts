import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

/** An app of many modules: leaves, layers of functions that use them, services on top, and a supervisor. */
export class GeneratedApp {
  readonly folder: string;
  readonly modules: number;
  /** The modules of its services, in `src`. */
  readonly services: readonly string[];

  private constructor(folder: string, modules: number) {
    this.folder = folder;
    this.modules = modules;
    this.services = Array.from({ length: Math.max(1, Math.floor(modules / 10) - 1) }, (_, at) => `s${at}.ts`);
  }

  static async write(folder: string, modules: number): Promise<GeneratedApp> {
    const app = new GeneratedApp(folder, modules);
    const services = app.services.length;
    const libraries = modules - services - 1;
    for (let at = 0; at < libraries; at += 1) await app.writeFile(`src/lib/m${at}.ts`, librarySource(at));
    for (let at = 0; at < services; at += 1) await app.writeService(at, 1, libraries);
    await app.writeFile("src/app.ts", supervisorSource(services));
    return app;
  }

  /** Writes a service whose `answer` is this value, and which counts its calls in its state. */
  writeService(at: number, answer: number, libraries = this.modules - Math.floor(this.modules / 10)): Promise<void> {
    return this.writeFile(`src/s${at}.ts`, serviceSource(at, answer, libraries));
  }

  async writeFile(path: string, content: string): Promise<void> {
    await mkdir(dirname(join(this.folder, path)), { recursive: true });
    await writeFile(join(this.folder, path), content);
  }
}

const helper = (at: number, n: number): string => `export function help${n}(value: number): number {
  const parts = Array.from({ length: 3 }, (_, index) => value * index + ${at});
  return parts.reduce((sum, part) => sum + part, ${n});
}`;

function librarySource(at: number): string {
  const imports = [at - 8, at - 9, at - 10].filter((other) => other >= 0);
  return `${imports.map((other) => `import { value as v${other} } from "./m${other}.ts";`).join("\n")}
${Array.from({ length: 12 }, (_, n) => helper(at, n)).join("\n")}
export interface Shape${at} { name: string; size: number }
export const value = (): number => ${["1", ...imports.map((other) => `v${other}()`)].join(" + ")};
`;
}

function serviceSource(at: number, answer: number, libraries: number): string {
  const library = Math.max(0, libraries - 2 - (at % 8));
  return `import { defineService } from "@atoll/live/app";
import { value } from "./lib/m${library}.ts";
export default defineService({
  init: (): { calls: number; value: number } => ({ calls: 0, value: value() }),
  call: {
    answer(state): { answer: number; calls: number } {
      state.calls += 1;
      return { answer: ${answer}, calls: state.calls };
    },
    hang(): void { for (;;); },
    crash(): void { throw new Error("on purpose"); },
    hoard(): void { const kept: Buffer[] = []; for (;;) kept.push(Buffer.alloc(1024 * 1024, 1)); },
  },
});
`;
}

function supervisorSource(services: number): string {
  const all = Array.from({ length: services }, (_, at) => at);
  return `import { defineSupervisor } from "@atoll/live/app";
${all.map((at) => `import s${at} from "./s${at}.ts";`).join("\n")}
export default defineSupervisor({ maxRestarts: 1000000, children: [
${all.map((at) => `  { id: "s${at}", start: [s${at}] },`).join("\n")}
] });
`;
}
