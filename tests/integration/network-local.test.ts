import { networkContract } from "../support/network-contract.ts";

networkContract("local");
