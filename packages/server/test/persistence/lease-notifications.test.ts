import { SandboxId } from "@atoll/protocol";
import { afterEach, expect, test, vi } from "vitest";
import { LeaseNotifications } from "../../src/persistence/lease-notifications.ts";

const id = SandboxId.parse("n".repeat(20));
afterEach(() => {
  vi.useRealTimers();
});

test("however many notifications come, one is handled at once and one after an interval", () => {
  vi.useFakeTimers();
  const acted: string[] = [];
  const box = new LeaseNotifications((notified) => acted.push(notified));
  for (let count = 0; count < 1_000; count += 1) box.take(id);
  expect(acted).toHaveLength(1);
  vi.advanceTimersByTime(100);
  expect(acted).toHaveLength(2);
  vi.advanceTimersByTime(10_000);
  expect(acted).toHaveLength(2);
  box.take(id);
  expect(acted).toHaveLength(3);
});
