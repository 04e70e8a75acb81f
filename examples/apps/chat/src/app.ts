import { defineSupervisor } from "@atoll/live/app";
import { gateway } from "./gateway.ts";
import { rooms } from "./rooms.ts";

export default defineSupervisor({
  children: [
    { id: "rooms", start: [rooms] },
    { id: "gateway", start: [gateway, { port: 7070 }] },
  ],
});
