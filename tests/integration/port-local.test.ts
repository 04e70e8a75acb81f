import { portContract } from "../support/port-contract.ts";

portContract("local");
