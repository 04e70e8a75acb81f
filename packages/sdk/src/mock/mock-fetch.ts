import {
  CommandLine,
  ErrorBody,
  httpHeaders,
  isSandboxError,
  routes,
  SandboxError,
  wakesSandbox,
  type Route,
  type RouteName,
} from "@atoll/protocol";
import { z } from "zod";
import { toBase64 } from "../http/base64.ts";
import type { MockCommand } from "./mock-command.ts";
import { handlers, type MockReply, type MockRequest } from "./mock-handlers.ts";
import type { MockWorld } from "./mock-world.ts";

/** Answers like the server: requests and replies are strictly checked against the schemas. */
export async function answer(world: MockWorld, request: Request, stopping: AbortSignal): Promise<Response> {
  try {
    const signed = await world.signed.answer(request, (id) => world.sandbox(id).files);
    if (signed !== undefined) return signed;
    const { name, route, params } = findRoute(request);
    if (route.verb !== "public") assertMay(world, request, params);
    const given = await readRequest(route, request, params);
    const key = route.isIdempotent === true ? request.headers.get(httpHeaders.idempotencyKey) : null;
    return toResponse(route, await once(world, key, () => handle(world, name, given)), stopping);
  } catch (thrown) {
    const error = isSandboxError(thrown) ? thrown : new SandboxError("internal", String(thrown), { cause: thrown });
    return Response.json(ErrorBody.parse({ error: error.toJSON() }), { status: error.status });
  }
}

async function handle(world: MockWorld, name: RouteName, given: MockRequest<RouteName>): Promise<MockReply> {
  // The table types each handler; TypeScript cannot follow the union through the lookup.
  const handler = handlers[name] as
    | ((world: MockWorld, request: MockRequest<RouteName>) => Promise<MockReply>)
    | undefined;
  if (handler === undefined) throw new SandboxError("unsupported", `Cannot answer ${name}: the mock does not have it`);
  const { id } = (given.params ?? {}) as { id?: string };
  if (id !== undefined && wakesSandbox(routes[name])) world.sandbox(id).wake();
  return handler(world, given);
}

async function once(world: MockWorld, key: string | null, work: () => Promise<MockReply>): Promise<MockReply> {
  if (key === null) return work();
  let known = world.known.get(key) as Promise<MockReply> | undefined;
  if (known === undefined) {
    known = work();
    world.known.set(key, known);
  }
  return known;
}

function findRoute(request: Request): { name: RouteName; route: Route; params: Record<string, string> } {
  const { pathname } = new URL(request.url);
  for (const [name, route] of Object.entries(routes)) {
    if (route.method !== request.method) continue;
    const pattern = new RegExp(`^${route.path.replaceAll(/:(\w+)/g, "(?<$1>[^/]+)")}$`);
    const match = pattern.exec(pathname);
    if (match === null) continue;
    const params = Object.entries(match.groups ?? {}).map(([key, value]) => [key, decodeURIComponent(value)] as const);
    return { name: name as RouteName, route, params: Object.fromEntries(params) };
  }
  throw new SandboxError("not_found", `Cannot ${request.method} ${pathname}: there is no such route`);
}

function assertMay(world: MockWorld, request: Request, params: Record<string, string>): void {
  const key = request.headers.get(httpHeaders.authorization)?.replace(/^Bearer /, "");
  const token = request.headers.get(httpHeaders.sandboxToken);
  if (key !== undefined && isKnownKey(world, key)) return;
  if (token !== null && world.sandboxes.get(params["id"] ?? "")?.token === token) return;
  throw new SandboxError("permission_denied", "Cannot go on: this API key is not valid");
}

export function isKnownKey(world: MockWorld, key: string): boolean {
  return key === world.apiKey || [...world.keys.values()].some(({ secret }) => secret === key);
}

async function readRequest(
  route: Route,
  request: Request,
  params: Record<string, string>,
): Promise<MockRequest<RouteName>> {
  const query = Object.fromEntries(new URL(request.url).searchParams);
  const bytes = new Uint8Array(await request.arrayBuffer());
  const json = route.body instanceof z.ZodType ? (JSON.parse(new TextDecoder().decode(bytes)) as unknown) : undefined;
  return {
    params: parse(route.params, params),
    query: parse(route.query, query),
    body: parse(route.body instanceof z.ZodType ? route.body : undefined, json),
    bytes,
    holder: request.headers.get(httpHeaders.holder) ?? undefined,
    wantsLines: request.headers.get("accept") === "application/x-ndjson",
  } as MockRequest<RouteName>;
}

function parse(schema: z.ZodType | undefined, value: unknown): unknown {
  if (schema === undefined) return undefined;
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw new SandboxError("invalid_argument", `Cannot accept this request: ${z.prettifyError(result.error)}`);
}

function toResponse(route: Route, reply: MockReply, stopping: AbortSignal): Response {
  const status = route.status ?? 200;
  if (reply === "none") return new Response(null, { status: 204 });
  if ("bytes" in reply) return new Response(reply.bytes.slice(), { status });
  if ("json" in reply) {
    // The check is strict, so that the mock cannot answer what the server could not.
    if (route.reply instanceof z.ZodType) route.reply.parse(reply.json);
    return Response.json(reply.json, { status });
  }
  const lines = linesOf(reply.follow, reply.from, stopping);
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await lines.next();
      if (done === true) {
        reply.ends?.();
        controller.close();
      } else controller.enqueue(new TextEncoder().encode(`${JSON.stringify(CommandLine.parse(value))}\n`));
    },
  });
  return new Response(body, { status, headers: { "content-type": "application/x-ndjson" } });
}

async function* linesOf(command: MockCommand, from: number, stopping: AbortSignal): AsyncGenerator<CommandLine, void> {
  yield { type: "started", command: { ...command.info } };
  const { rollbacks = 0 } = command.info;
  let at = from;
  for (;;) {
    command.assertSince(rollbacks);
    for (let piece = command.log.next(at); piece !== undefined; piece = command.log.next(at)) {
      if ("droppedBytes" in piece) {
        yield { type: "dropped", at, bytes: piece.droppedBytes };
        at += piece.droppedBytes;
      } else {
        yield { type: piece.stream, at, offset: piece.offset, ...textOf(piece.bytes) };
        at += piece.bytes.length;
      }
    }
    if (command.info.state !== "running") break;
    if (stopping.aborted) return yield { type: "shutdown" };
    await command.bell.next();
  }
  yield { type: "ended", command: { ...command.info } };
}

function textOf(bytes: Uint8Array): { text: string } | { base64: string } {
  try {
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) };
  } catch {
    return { base64: toBase64(bytes) };
  }
}
