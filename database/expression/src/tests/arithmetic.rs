//! Arithmetic and trigonometry.

use bson::{Bson, DateTime};

use super::{fails, table};

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().unwrap())
}

fn date(ms: i64) -> DateTime {
    DateTime::from_millis(ms)
}

#[test]
fn sums_and_products() {
    table! {
        {"$add": []} => 0;
        {"$add": [1, 2]} => 3;
        {"$add": [1, 2.5]} => 3.5;
        {"$add": [(i32::MAX), 1]} => 2_147_483_648_i64;
        {"$add": [(i64::MAX), 1]} => 9_223_372_036_854_775_808.0;
        {"$add": [(decimal("0.1")), 1]} => decimal("1.1");
        {"$add": [1, null, "x"]} => Bson::Null;
        {"$add": [1, "$a"]} => Bson::Null;
        {"$add": [1, "x"]} => fails(14, "$add only supports numeric or date types, not string");
        {"$add": [(date(1000)), 1, 2.6]} => date(1004);
        {"$add": [(date(1)), (date(1))]} => fails(16612, "only one date allowed");
        {"$add": [(date(i64::MAX)), 1]} => fails(15, "date overflow in $add");
        {"$subtract": [3, 5]} => -2;
        {"$subtract": [(date(5)), (date(3))]} => 2_i64;
        {"$subtract": [(date(5)), 3]} => date(2);
        {"$subtract": [3, (date(5))]} => fails(14, "can't $subtract date from int");
        {"$subtract": [(date(5)), "x"]} => fails(14, "can't $subtract string from date");
        {"$subtract": [null, "x"]} => Bson::Null;
        {"$multiply": [3, 5, 0.5]} => 7.5;
        {"$multiply": [3, "x"]} => fails(14, "$multiply only supports numeric types, not string");
        {"$multiply": []} => 1;
        {"$divide": [7, 2]} => 3.5;
        {"$divide": [6, 2]} => 3.0;
        {"$divide": [1, 0]} => fails(2, "can't $divide by zero");
        {"$divide": [1, "x"]} => fails(14, "$divide only supports numeric types, not int and string");
        {"$divide": [null, "x"]} => Bson::Null;
        {"$mod": [-7, 3]} => -1;
        {"$mod": [7.5, 2]} => 1.5;
        {"$mod": [7, 0]} => fails(16610, "can't $mod by zero");
        {"$mod": [7, "x"]} => fails(16611, "$mod only supports numeric types, not int and string");
    }
}

#[test]
fn functions_of_one_number() {
    table! {
        {"$abs": -5} => 5;
        {"$abs": (i32::MIN)} => 2_147_483_648_i64;
        {"$abs": (i64::MIN)} => fails(28680, "can't take $abs of long long min");
        {"$abs": "x"} => fails(28765, "$abs only supports numeric types, not string");
        {"$ceil": 1.2} => 2.0;
        {"$floor": -1.2} => -2.0;
        {"$floor": 7} => 7;
        {"$exp": 0} => 1.0;
        {"$ln": 1} => 0.0;
        {"$ln": 0} => fails(28766, "$ln's argument must be a positive number, but is 0");
        {"$log": [8, 2]} => 3.0;
        {"$log": [8, 1]} => fails(28759, "$log's base must be a positive number not equal to 1, but is 1");
        {"$log": [-8, 2]} => fails(28758, "$log's argument must be a positive number, but is -8");
        {"$log": ["x", 2]} => fails(28756, "$log's argument must be numeric, not string");
        {"$log10": 1000} => 3.0;
        {"$log10": -1} => fails(28761, "but is -1");
        {"$pow": [2, 10]} => 1024;
        {"$pow": [2, 40]} => 1_099_511_627_776_i64;
        {"$pow": [2, -1]} => 0.5;
        {"$pow": [0, -1]} => fails(28764, "$pow cannot take a base of 0 and a negative exponent");
        {"$pow": ["x", 1]} => fails(28762, "$pow's base must be numeric, not string");
        {"$sqrt": 9} => 3.0;
        {"$sqrt": -1} => fails(28714, "greater than or equal to 0");
        {"$sqrt": "$a"} => Bson::Null;
    }
}

#[test]
fn rounding() {
    table! {
        {"$round": 2.5} => 2.0;
        {"$round": [2.675, 2]} => 2.67;
        {"$round": [1234, -2]} => 1200;
        {"$round": [(decimal("1.25")), 1]} => decimal("1.2");
        {"$round": [null, 1]} => Bson::Null;
        {"$round": [1.5, null]} => Bson::Null;
        {"$trunc": [-7.89, 1]} => -7.8;
        {"$trunc": 7.9} => 7.0;
        {"$round": "x"} => fails(51081, "$round only supports numeric types, not string");
        {"$round": [1, 1.5]} => fails(51082, "must be a integral value");
        {"$round": [1, 101]} => fails(51083, "cannot apply $round with precision value 101 value must be in [-20, 100]");
        {"$round": [1, "x"]} => fails(16004, "can't convert from BSON type string to long");
        {"$round": [1, (f64::NAN)]} => fails(31109, "out of range value nan to long");
        {"$round": [(i64::MAX), -1]} => fails(51080, "invalid conversion from Decimal128 result in $round");
    }
}

#[test]
fn bits() {
    table! {
        {"$bitAnd": [12, 10]} => 8;
        {"$bitOr": [12, 3_i64]} => 15_i64;
        {"$bitXor": [12, 10]} => 6;
        {"$bitXor": [-1, 0]} => -1;
        {"$bitAnd": []} => -1;
        {"$bitNot": 5} => -6;
        {"$bitAnd": [1.0]} => fails(14, "$bitAnd only supports int and long operands, not double");
        {"$bitNot": 1.0} => fails(28765, "$bitNot only supports int and long, not double");
        {"$bitOr": [1, null]} => Bson::Null;
    }
}

#[test]
fn trigonometry() {
    table! {
        {"$sin": 0} => 0.0;
        {"$cos": 0.0} => 1.0;
        {"$atan2": [0, 1]} => 0.0;
        {"$acos": 1} => 0.0;
        {"$acos": 2} => fails(50989, "cannot apply $acos to 2, value must be in [-1,1]");
        {"$sin": (f64::INFINITY)} => fails(50989, "value must be in (-inf,inf)");
        {"$cos": (f64::NAN)} => f64::NAN;
        {"$cos": (decimal("0"))} => decimal("1");
        {"$degreesToRadians": 180} => std::f64::consts::PI;
        {"$atan2": ["x", 1]} => fails(51044, "$atan2 only supports numeric types, not string and int");
        {"$tanh": null} => Bson::Null;
    }
}
