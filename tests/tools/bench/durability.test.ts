import { once } from "node:events";
import { connect, createServer, type AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { CuttingProxy } from "../../bench/server/durability/cutting-proxy.ts";
import { payloadOf, planRound } from "../../bench/server/durability/plan.ts";
import { SeededRandom } from "../../bench/server/durability/seeded-random.ts";

test("the same seed plans the same round, and another seed a different one", () => {
  expect(planRound(17)).toEqual(planRound(17));
  expect(planRound(17)).not.toEqual(planRound(18));
});

test("two hundred rounds contain every kind of work with every victim", () => {
  const plans = Array.from({ length: 200 }, (_, index) => planRound(index));
  const kinds = new Set(plans.map(({ work, victim }) => `${work} ${victim}`));
  expect(kinds.size).toBe(9);
});

test("a payload has the planned length, and all its lines differ", () => {
  const plan = { ...planRound(5), bytes: 100_000 };
  const payload = payloadOf(plan);
  expect(payload.byteLength).toBe(100_000);
  const lines = payload.toString().split("\n").slice(0, -1);
  expect(new Set(lines).size).toBe(lines.length);
});

test("random numbers lie between the limits and reach both", () => {
  const random = new SeededRandom(1);
  const numbers = Array.from({ length: 1_000 }, () => random.between(3, 6));
  expect(new Set(numbers)).toEqual(new Set([3, 4, 5, 6]));
});

test("the proxy forwards bytes, strikes at the given byte and then cuts", async () => {
  const echo = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.pipe(socket);
  }).listen(0, "127.0.0.1");
  await once(echo, "listening");
  await using proxy = await CuttingProxy.open((echo.address() as AddressInfo).port);
  const socket = connect(Number(new URL(proxy.url).port), "127.0.0.1");
  socket.on("error", () => undefined);
  let strikes = 0;
  // Ten bytes pass in each direction.
  proxy.arm([15, 1_000], () => {
    strikes += 1;
  });
  socket.write("0123456789");
  const [data] = (await once(socket, "data")) as [Buffer];
  expect(data.toString()).toBe("0123456789");
  expect(strikes).toBe(1);
  expect(proxy.disarm()).toBe(1);
  const closed = new Promise((resolve) => socket.once("close", resolve));
  proxy.cut({ isReset: true });
  await closed;
  echo.close();
  await once(echo, "close");
});
