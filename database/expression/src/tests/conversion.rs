//! `$convert` and its short forms.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, bson};

use super::{fails, table};

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().unwrap())
}

fn binary(subtype: BinarySubtype, bytes: &[u8]) -> Bson {
    Bson::Binary(Binary {
        subtype,
        bytes: bytes.to_vec(),
    })
}

fn uuid() -> Bson {
    binary(BinarySubtype::Uuid, &[0x11; 16])
}

#[test]
fn to_numbers() {
    table! {
        {"$toInt": 5.9} => 5;
        {"$toInt": -5.9} => -5;
        {"$toInt": true} => 1;
        {"$toInt": "-42"} => -42;
        {"$toInt": (decimal("7.9"))} => 7;
        {"$toInt": 1e10} => fails(241, "Conversion would overflow target type in $convert with no onError value: 10000000000");
        {"$toInt": (f64::NAN)} => fails(241, "Attempt to convert NaN value to integer type in $convert");
        {"$toLong": (f64::INFINITY)} => fails(241, "Attempt to convert infinity value to integer type");
        {"$toInt": "5.5"} => fails(241, "Failed to parse number '5.5' in $convert with no onError value: Did not consume whole string.");
        {"$toInt": ""} => fails(241, "Empty string");
        {"$toInt": "x"} => fails(241, "Did not consume any digits");
        {"$toInt": "99999999999999999999"} => fails(241, "Overflow");
        {"$toInt": (DateTime::from_millis(5))} => fails(241, "Unsupported conversion from date to int in $convert with no onError value");
        {"$toLong": (DateTime::from_millis(5))} => 5_i64;
        {"$toLong": 5} => 5_i64;
        {"$toDouble": "-1.5e3"} => -1500.0;
        {"$toDouble": true} => 1.0;
        {"$toDouble": 7} => 7.0;
        {"$toDouble": "0x10"} => fails(241, "Illegal hexadecimal input in $convert with no onError value: 0x10");
        {"$toDouble": "aé"} => fails(241, "Failed to parse number 'aé'");
        {"$toDouble": "1e999"} => fails(241, "Out of range");
        {"$toDouble": (decimal("1E400"))} => fails(241, "would overflow target type");
        {"$toDouble": [[1]]} => fails(241, "Unsupported conversion from array to double");
        {"$toDecimal": "1.50"} => decimal("1.50");
        {"$toDecimal": 2} => decimal("2");
        {"$toDecimal": "x"} => fails(241, "Failed to parse number 'x'");
        {"$toInt": null} => Bson::Null;
        {"$toInt": "$none"} => Bson::Null;
    }
}

#[test]
fn to_other_types() {
    let id = ObjectId::from_bytes([0x66, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    table! {
        {"$toBool": 0.0} => false;
        {"$toBool": "false"} => true;
        {"$toBool": [[]]} => true;
        {"$toBool": null} => Bson::Null;
        {"$toString": true} => "true";
        {"$toString": 2.5} => "2.5";
        {"$toString": 1.0} => "1";
        {"$toString": 0.1} => "0.1";
        {"$toString": 1e21} => "1e+21";
        {"$toString": 1.5e-7} => "1.5e-07";
        {"$toString": (f64::NEG_INFINITY)} => "-Infinity";
        {"$toString": (decimal("1.50"))} => "1.50";
        {"$toString": (DateTime::from_millis(0))} => "1970-01-01T00:00:00.000Z";
        {"$toString": (id)} => id.to_hex();
        {"$toString": {"$literal": {}}} => fails(241, "Unsupported conversion from object to string");
        {"$toObjectId": (id.to_hex())} => id;
        {"$toObjectId": "12"} => fails(241, "Failed to parse objectId '12' in $convert with no onError value: Invalid string length for parsing to OID, expected 24 but found 2");
        {"$toObjectId": "zzzzzzzzzzzzzzzzzzzzzzzz"} => fails(241, "Invalid character found in hex string");
        {"$toObjectId": 1} => fails(241, "Unsupported conversion from int to objectId");
        {"$toDate": 1000_i64} => DateTime::from_millis(1000);
        {"$toDate": 1000} => fails(241, "Unsupported conversion from int to date");
        {"$toDate": "1970-01-02"} => DateTime::from_millis(86_400_000);
        {"$toDate": "x"} => fails(241, "Error parsing date string 'x'");
        {"$toDate": (id)} => DateTime::from_millis(0x6600_0000 * 1000);
        {"$toDate": (bson::Timestamp { time: 2, increment: 9 })} => DateTime::from_millis(2000);
    }
}

#[test]
fn binary_data() {
    let text = "11111111-1111-1111-1111-111111111111";
    table! {
        {"$toUUID": text} => uuid();
        {"$toString": (uuid())} => text;
        {"$toUUID": "x"} => fails(241, "Failed to parse BinData 'x'");
        {"$convert": {"input": (binary(BinarySubtype::Generic, b"hi!")), "to": "string", "format": "base64"}} => "aGkh";
        {"$convert": {"input": (binary(BinarySubtype::Generic, b"hi")), "to": "string", "format": "hex"}} => "6869";
        {"$convert": {"input": "hi", "to": "binData", "format": "utf8"}} => binary(BinarySubtype::Generic, b"hi");
        {"$convert": {"input": "aGkh", "to": {"type": "binData", "subtype": 5}, "format": "base64"}} => binary(BinarySubtype::Md5, b"hi!");
        {"$convert": {"input": "ff0", "to": "binData", "format": "hex"}} => fails(241, "Failed to parse BinData 'ff0'");
        {"$convert": {"input": "hi", "to": "binData"}} => fails(4_341_115, "Missing 'format' parameter");
        {"$convert": {"input": "hi", "to": "binData", "format": "x"}} => fails(4_341_125, "Invalid 'format' argument for $convert: x");
    }
}

#[test]
fn named_arguments() {
    table! {
        {"$convert": {"input": "1", "to": "int"}} => 1;
        {"$convert": {"input": "1", "to": 16}} => 1;
        {"$convert": {"input": "x", "to": "int", "onError": "bad"}} => "bad";
        {"$convert": {"input": "$none", "to": "int", "onNull": 7}} => 7;
        {"$convert": {"input": "1", "to": null}} => Bson::Null;
        {"$convert": {"input": "1", "to": "number"}} => fails(2, "Unknown type name: number");
        {"$convert": {"input": "1", "to": 99}} => fails(9, "numeric value for 'to' does not correspond to a BSON type: 99");
        {"$convert": {"input": "1", "to": 1.5}} => fails(9, "numeric 'to' argument is not an integer");
        {"$convert": {"input": "1", "to": true}} => fails(9, "must be a string or number, but is bool");
        {"$convert": {"input": "1", "to": "regex"}} => fails(241, "Unsupported conversion from string to regex");
        {"$convert": {"input": "1"}} => fails(9, "Missing 'to' parameter to $convert");
        {"$convert": {"to": "int"}} => fails(9, "Missing 'input' parameter to $convert");
        {"$convert": {"x": "int"}} => fails(9, "$convert found an unknown argument: x");
        {"$convert": 1} => fails(9, "$convert expects an object of named arguments but found: int");
        {"$map": {"input": ["1", "2"], "in": {"$toInt": "$$this"}}} => bson!([1, 2]);
    }
}
