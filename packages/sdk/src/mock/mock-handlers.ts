import {
  builtInProfiles,
  CreateSandbox,
  keyPolicy,
  RunCommand,
  SandboxError,
  SandboxLimits,
  standardProfile,
  type CommandInfo,
  type routes,
  type RouteName,
  type ResolvedProfile,
  type RunContent,
  type SecurityProfile,
} from "@atoll/protocol";
import type { z } from "zod";
import { fromBase64 } from "../http/base64.ts";
import { packTar, unpackTar } from "./mock-archive.ts";
import { randomName, type MockCommand } from "./mock-command.ts";
import type { MockWorld } from "./mock-world.ts";

type Part<Name extends RouteName, Key extends "params" | "query" | "body"> =
  (typeof routes)[Name] extends Record<Key, infer Schema extends z.ZodType> ? z.output<Schema> : undefined;

export interface MockRequest<Name extends RouteName> {
  params: Part<Name, "params">;
  query: Part<Name, "query">;
  body: Part<Name, "body">;
  bytes: Uint8Array;
  holder: string | undefined;
  wantsLines: boolean;
}

/** A body that is not JSON: bytes, or the lines of a command. */
export type MockReply =
  | { json: unknown }
  | { bytes: Uint8Array }
  | { follow: MockCommand; from: number; ends?: () => void }
  | "none";

type Handler<Name extends RouteName> = (world: MockWorld, request: MockRequest<Name>) => MockReply | Promise<MockReply>;

/** The routes that the mock answers; the others are `unsupported`. */
export const handlers: { [Name in RouteName]?: Handler<Name> } = {
  createSandbox: (world, { body }) => {
    const sandbox = world.create(CreateSandbox.parse(body));
    return { json: { sandbox: sandbox.info(), token: sandbox.token } };
  },
  listSandboxes: (world, { query }) => {
    const wanted = (query.label ?? "").split(",").filter((pair) => pair !== "");
    const all = [...world.sandboxes.values()].map((sandbox) => sandbox.info());
    const matching = all.filter(
      ({ state, labels }) =>
        (query.state === undefined || query.state === state) &&
        wanted.every((pair) => labels[pair.slice(0, pair.indexOf("="))] === pair.slice(pair.indexOf("=") + 1)),
    );
    const start = query.cursor === undefined ? 0 : Number(query.cursor);
    const end = start + query.limit;
    const page = matching.slice(start, end);
    return { json: { sandboxes: page, ...(end < matching.length ? { next: String(end) } : {}) } };
  },
  getSandbox: (world, { params }) => ({ json: world.sandbox(params.id).info() }),
  updateSandbox: (world, { params, body }) => {
    const sandbox = world.sandbox(params.id);
    sandbox.change(body);
    return { json: sandbox.info() };
  },
  killSandbox: (world, { params }) => ({ json: { killed: world.kill(params.id) } }),
  pauseSandbox: (world, { params }) => {
    const sandbox = world.sandbox(params.id);
    const { n: checkpoint } = sandbox.pause();
    return { json: { sandbox: sandbox.info(), checkpoint, ended: [], phases: {}, totalMs: 0 } };
  },
  resumeSandbox: (world, { params }) => {
    const sandbox = world.sandbox(params.id);
    const { n: checkpoint } = sandbox.resume();
    return { json: { sandbox: sandbox.info(), checkpoint, phases: {}, totalMs: 0 } };
  },
  forkSandbox: (world, { params, body }) => {
    const parent = world.sandbox(params.id);
    const copies = Array.from({ length: body.count }, () => world.fork(parent));
    const sandboxes = copies.map((copy) => ({ sandbox: copy.info(), token: copy.token }));
    return { json: { sandboxes, checkpoint: parent.checkpoints.length, phases: {}, totalMs: 0 } };
  },
  rollBackSandbox: (world, { params, body: { checkpoint } }) => {
    const sandbox = world.sandbox(params.id);
    const left = sandbox.rollBack(checkpoint);
    world.emit({ type: "sandbox.rolled_back", sandboxId: sandbox.info().id, checkpoint, ...left });
    return { json: { sandbox: sandbox.info(), checkpoint, ...left, phases: {}, totalMs: 0 } };
  },
  removeCheckpoint: (world, { params: { id, checkpoint } }) => {
    const sandbox = world.sandbox(id);
    const removed = sandbox.removeCheckpoint(checkpoint);
    if (removed) world.emit({ type: "checkpoint.removed", sandboxId: sandbox.info().id, checkpoint });
    return { json: { removed } };
  },
  listCheckpoints: (world, { params }) => ({ json: { checkpoints: world.sandbox(params.id).checkpoints } }),
  getUsage: (world, { params }) => {
    const { runningCommands } = world.sandbox(params.id).info();
    const usage = { memoryBytes: 1024 * 1024, memoryPeakBytes: 1024 * 1024, cpuMs: 1, diskBytes: 0 };
    return { json: { readAtMs: Date.now(), ...usage, processes: 1 + runningCommands } };
  },
  getUsageHistory: (world, { params }) => {
    const { createdAtMs } = world.sandbox(params.id).info();
    const atMs = Date.now();
    const usage = { memoryBytes: 1024 * 1024, cpuMs: 1, cpus: 0, diskBytes: 0, sentBytes: 0, receivedBytes: 0 };
    return { json: { intervalMs: 5_000, kept: 360, samples: [{ atMs, uptimeMs: atMs - createdAtMs, ...usage }] } };
  },
  holdSandbox: (world, { params, body }) => {
    const sandbox = world.sandbox(params.id);
    sandbox.assertNotHeld(body.holder);
    sandbox.change({ heldBy: body.holder });
    return { json: sandbox.info() };
  },
  unholdSandbox: (world, { params, query }) => {
    const sandbox = world.sandbox(params.id);
    sandbox.assertNotHeld(query.holder);
    sandbox.release();
    return { json: sandbox.info() };
  },
  getEgress: (world, { params }) => ({ json: world.sandbox(params.id).info().egress }),
  setEgress: (world, { params, body }) => {
    world.sandbox(params.id).change({ egress: body });
    return { json: body };
  },
  runCommand: async (world, { params, body, wantsLines }) => {
    const command = world.run(world.sandbox(params.id), body);
    if (wantsLines) return { follow: command, from: 0 };
    if (!body.background) await command.untilEnd();
    return { json: resultOf(command) };
  },
  listCommands: (world, { params }) => {
    const commands = [...world.sandbox(params.id).commands.values()];
    return { json: { commands: commands.map(({ info }) => info) } };
  },
  getCommand: (world, { params }) => ({ json: commandOf(world, params).info }),
  readCommand: (world, { params, query }) => ({ follow: commandOf(world, params), from: query.from }),
  writeStdin: (world, { params, query, bytes }) => {
    const command = commandOf(world, params);
    command.writeStdin(bytes, query.offset, query.writer);
    return inputReply(command, query.writer);
  },
  closeStdin: (world, { params, query }) => {
    const command = commandOf(world, params);
    command.closeStdin();
    return inputReply(command, query.writer);
  },
  signalCommand: (world, { params, body }) => {
    const command = commandOf(world, params);
    command.kill(body.signal);
    return { json: command.info };
  },
  resizeCommand: (world, { params }) => {
    const command = commandOf(world, params);
    if (!command.info.hasPty) throw new SandboxError("invalid_argument", "Cannot resize: the command has no terminal");
    return { json: command.info };
  },
  runOnce: async (world, { body, wantsLines }) => {
    const sandbox = world.create(CreateSandbox.parse({ env: body.env }));
    const { id } = sandbox.info();
    const line = body.argv === undefined ? { shell: `${body.language} ${body.code}` } : { argv: body.argv };
    const options = { timeoutMs: body.timeoutMs, stdin: body.stdin !== undefined };
    const command = world.run(sandbox, RunCommand.parse({ ...line, ...options }));
    if (body.stdin !== undefined) command.writeStdin(bytesOf(body.stdin));
    if (body.stdin !== undefined) command.closeStdin();
    if (wantsLines) return { follow: command, from: 0, ends: () => world.kill(id) };
    await command.untilEnd();
    world.kill(id);
    return { json: resultOf(command) };
  },
  endRun: () => "none",
  readFile: (world, { params, query }) => {
    const { offset = 0, length } = query;
    const content = world.sandbox(params.id).files.read(query.path);
    return { bytes: content.slice(offset, length === undefined ? undefined : offset + length) };
  },
  writeFile: (world, { params, query, bytes }) => ({
    json: world.sandbox(params.id).files.write(query.path, bytes, query),
  }),
  removeFile: (world, { params, query }) => {
    world.sandbox(params.id).files.remove(query.path, query.recursive);
    return "none";
  },
  statFile: (world, { params, query }) => ({ json: world.sandbox(params.id).files.stat(query.path) }),
  listFiles: (world, { params, query }) => ({
    json: { files: world.sandbox(params.id).files.list(query.path, query.depth) },
  }),
  makeDirectory: (world, { params, body }) => ({
    json: world.sandbox(params.id).files.makeDirectory(body.path, body),
  }),
  renameFile: (world, { params, body }) => ({
    json: world.sandbox(params.id).files.rename(body.from, body.to, body.replace),
  }),
  packFiles: (world, { params, query }) => ({
    bytes: packTar(world.sandbox(params.id).files.entriesBelow(query.path)),
  }),
  unpackFiles: (world, { params, query, bytes }) => {
    const entries = unpackTar(bytes);
    world.sandbox(params.id).files.put(query.path, entries);
    const sizes = entries.flatMap(({ content }) => (content === undefined ? [] : [content.length]));
    return { json: { files: sizes.length, bytes: sizes.reduce((sum, size) => sum + size, 0) } };
  },
  signFile: (world, { params, body }) => ({ json: world.signed.sign(world.sandbox(params.id).info().id, body) }),
  getPort: (world, { params }) => portReply(world, params),
  setPort: (world, { params, body }) => {
    const { publicPorts } = world.sandbox(params.id);
    if (body.isPublic) publicPorts.add(params.port);
    else publicPorts.delete(params.port);
    return portReply(world, params);
  },
  waitForPort: (world, { params }) => portReply(world, params),
  listTemplates: (world) => ({ json: { templates: [...world.templates.values()] } }),
  importTemplate: (world, { params, bytes }) => ({ json: world.importTemplate(params.name, unpackTar(bytes)) }),
  removeTemplate: (world, { params }) => {
    world.removeTemplate(params.name);
    return "none";
  },
  takeSnapshot: (world, { params, body }) => ({ json: world.takeSnapshot(world.sandbox(params.id), body.name) }),
  listSnapshots: (world) => ({ json: { snapshots: world.snapshots.list() } }),
  getSnapshot: (world, { params }) => ({ json: world.snapshots.get(params.name) }),
  updateSnapshot: (world, { params, body }) => ({ json: world.snapshots.share(params.name, body.shared) }),
  removeSnapshot: (world, { params }) => {
    world.removeSnapshot(params.name);
    return "none";
  },
  exportSnapshot: (world, { params }) => ({ bytes: world.snapshots.export(params.name) }),
  importSnapshot: (world, { params, bytes }) => ({ json: world.importSnapshot(params.name, bytes) }),
  listProfiles: () => ({ json: { profiles: builtInProfiles.map(resolved) } }),
  getProfile: (_world, { params }) => {
    const profile = builtInProfiles.find(({ name }) => name === params.name);
    if (profile === undefined) throw new SandboxError("invalid_argument", `Cannot use the profile ${params.name}`);
    return { json: resolved(profile) };
  },
  createKey: (world, { body }) => {
    const id = randomName().slice(0, 12);
    const key = { id, ...body, policy: keyPolicy(body.verbs, body.policy), createdAtMs: Date.now() };
    const secret = `mock-${randomName()}`;
    world.keys.set(id, { key, secret });
    return { json: { key, secret } };
  },
  listKeys: (world) => ({ json: { keys: [...world.keys.values()].map(({ key }) => key) } }),
  revokeKey: (world, { params }) => {
    if (!world.keys.delete(params.keyId)) throw new SandboxError("not_found", `Cannot find key ${params.keyId}`);
    return "none";
  },
  showConfig: () => ({ json: { settings: {} } }),
  healthz: () => ({ json: { status: "ok" } }),
  readyz: () => ({ json: { status: "ready" } }),
};

function resolved(profile: SecurityProfile): ResolvedProfile {
  const { runTimeMs: _, ...limits } = profile.limits;
  return {
    profile,
    isBuiltIn: true,
    isDefault: profile.name === standardProfile,
    missing: [],
    driver: "gvisor",
    limits: SandboxLimits.parse(limits),
    egress: profile.egress ?? { allow: [], deny: [] },
    memoryCounts: "the mock counts nothing",
  };
}

function commandOf(world: MockWorld, params: { id: string; commandId: string }): MockCommand {
  return world.sandbox(params.id).command(params.commandId);
}

function inputReply(command: MockCommand, writer: string | undefined): MockReply {
  const writerBytes = writer === undefined ? {} : { writerBytes: command.nextOffset(writer) };
  return { json: { stdinBytes: command.info.stdinBytes, ...writerBytes } };
}

function portReply(world: MockWorld, { id, port }: { id: string; port: number }): MockReply {
  const isPublic = world.sandbox(id).publicPorts.has(port);
  return { json: { url: `/p/${id}/${port}/`, port, isPublic, ...(isPublic ? {} : { token: `mock-port-${port}` }) } };
}

function resultOf({ info, log }: MockCommand): {
  command: CommandInfo;
  stdout: string;
  stderr: string;
  droppedBytes: number;
} {
  const text = (stream: "stdout" | "stderr"): string => {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    const pieces = log
      .pieces()
      .filter((piece) => piece.stream === stream)
      .map(({ bytes }) => decoder.decode(bytes, { stream: true }));
    return pieces.join("") + decoder.decode();
  };
  return { command: { ...info }, stdout: text("stdout"), stderr: text("stderr"), droppedBytes: info.droppedBytes };
}

function bytesOf(content: RunContent): Uint8Array {
  return typeof content === "string" ? new TextEncoder().encode(content) : fromBase64(content.base64);
}
